import Synchronization

extension TaskQueue {
  /// Performs tasks until the call is cancelled or the queue is shut down.
  ///
  /// Handlers run in child tasks of this call, so cancelling the call also cancels the handlers. If
  /// a cancelled handler throws, its task is released, and no retry is counted. When all handlers
  /// have ended, the call throws `CancellationError`. After ``shutDown(within:)``, the call
  /// returns, even if the store is still being opened.
  ///
  /// If the store fails, the call throws. No change that the store has acknowledged is lost. Either
  /// run this queue again: it still has the results of the last attempts, and stores them. Or close
  /// the store, and make a new queue with a new store. Calls that wait for a task's outcome don't
  /// throw when the store fails. They keep waiting, so always handle the error of this call.
  ///
  /// - Throws: `CancellationError`; the error that keeps the store from being opened; a
  ///   ``TaskQueueError`` if the queue, or another queue on its store, is already running, if the
  ///   queue was shut down, or if its store has failed.
  public nonisolated func run() async throws { try await core.run(.untilStopped) }

  /// Performs the tasks that are available at the time of the call, and returns when they are done.
  ///
  /// The call does not retry a task that fails, even if the retry is due at once. It does not
  /// perform tasks that are enqueued after it has started, unless the clock stands still, as in a
  /// test. To perform these, too, and wait for them, call ``waitUntilIdle()`` while ``run()`` is
  /// running.
  ///
  /// - Returns: The number of attempts; 0 if the queue is paused.
  /// - Throws: The same errors as ``run()``.
  @discardableResult
  public nonisolated func runAvailable() async throws -> Int {
    try await core.runPass()
  }
}

/// Runs that a signal ends.
extension TaskQueue {
  /// Performs tasks until the process gets a signal, and then lets the attempts under way end.
  ///
  /// At the signal, the queue is shut down (``beginShutDown(within:)``): no further attempt begins,
  /// and when the limit has passed, the attempts under way are cancelled, and no retry is counted.
  /// A further signal changes nothing. During the call, the signals have no other effect.
  ///
  /// If the queue was shut down before, the call returns at once. If the call is cancelled, the
  /// attempts are cancelled at once, as with ``run()``.
  ///
  /// When the call has ended, the signals have the same effect as before. Don't begin to handle one
  /// of them in another way during the call, because the end of the call would undo this.
  ///
  /// - Parameters:
  ///   - signal: a signal.
  ///   - others: further signals.
  ///   - limit: how long attempts may continue after a signal.
  ///   - onSignal: called at each signal, for example to accept no more requests. It must not
  ///     block.
  /// - Throws: the same errors as ``run()``, except that the queue was shut down.
  public nonisolated func run(
    stoppingOn signal: UnixSignal,
    _ others: UnixSignal...,
    within limit: Duration,
    onSignal: @escaping @Sendable () -> Void = {}
  ) async throws {
    try await UnixSignal.watch([signal] + others, during: run) {
      self.beginShutDown(within: limit)
      onSignal()
    }
  }

  /// Performs the tasks that are available at the time of the call, until they are done or the
  /// process gets a signal.
  ///
  /// At the signal, the queue is shut down, as by ``run(stoppingOn:_:within:onSignal:)``. Then
  /// later calls return at once. To end a loop of calls, check whether the phase of ``health`` is
  /// ``QueueHealth/Phase/ended``.
  ///
  /// - Parameters:
  ///   - signal: a signal.
  ///   - others: further signals.
  ///   - limit: how long attempts may continue after a signal.
  ///   - onSignal: called at each signal, for example to accept no more requests. It must not
  ///     block.
  /// - Returns: the number of attempts; 0 if the queue is paused, or was shut down before.
  /// - Throws: the same errors as ``runAvailable()``, except that the queue was shut down.
  @discardableResult
  public nonisolated func runAvailable(
    stoppingOn signal: UnixSignal,
    _ others: UnixSignal...,
    within limit: Duration,
    onSignal: @escaping @Sendable () -> Void = {}
  ) async throws -> Int {
    try await UnixSignal.watch([signal] + others, during: runAvailable) {
      self.beginShutDown(within: limit)
      onSignal()
    } ?? 0
  }
}

extension TaskQueue {
  /// Pauses the queue: no further attempt begins, and attempts under way continue.
  ///
  /// The pause is kept in memory, so it ends with the process. To store a pause, which applies to
  /// the queue in every process, call ``pause(durability:)``.
  ///
  /// Once the call has returned, no attempt begins until ``resume()``. An attempt begins when a
  /// worker picks its task, which is before the handler is called. So a handler whose attempt began
  /// before the pause may still be called. If the calling Swift task is cancelled, the queue is
  /// paused nevertheless, but the call does not wait for attempts that are about to begin. Tasks
  /// can still be enqueued, and ``run()`` continues without performing any.
  ///
  /// A queue that is paused and resumed again and again still makes progress. If a pause releases
  /// claimed tasks before they start, the next pause lets its claimed tasks start, and returns
  /// after they have started.
  public func pause() async {
    await core.gate.pause()
  }

  /// Undoes ``pause()``.
  ///
  /// This does not end a stored pause; ``resume(durability:)`` does.
  public func resume() async {
    core.gate.resume()
  }

  /// Whether the queue is paused, in memory or in its store.
  ///
  /// The queue reads the stored pause when it first opens the store, for example in ``open()``. In
  /// a shared store, another process may have changed the stored pause since this queue last read
  /// it; ``storedPause()`` reads it again.
  public nonisolated var isPaused: Bool { core.dispatch.machine.withLock { $0.isPaused } }

  /// Whether an attempt is under way.
  public nonisolated var isProcessing: Bool {
    core.dispatch.machine.withLock { $0.performing > 0 }
  }

  /// Stops the queue for good: no further attempt begins, and the call waits until all attempts
  /// under way have ended.
  ///
  /// ``run()`` then returns. Tasks can still be enqueued and looked up. Enqueued tasks wait for a
  /// new queue on the same store. Once the new queue runs, enqueue tasks with that queue, because
  /// it does not notice tasks that another queue adds. Calls that wait for the outcome of a task
  /// throw, unless the task has ended. Observers get no more events. The queue releases its
  /// handlers, and everything that they reference. If the calling Swift task is cancelled, the call
  /// returns at once, and the shutdown continues.
  ///
  /// Without a limit, a call from a handler of the queue, or from a Swift task that the handler
  /// started, returns at once, as ``beginShutDown(within:)`` does. Otherwise, the handler would
  /// wait for its own end.
  ///
  /// - Parameter limit: how long attempts may continue; by default until they end. When the limit
  ///   has passed, the attempts are cancelled, and the call waits for their handlers. Their tasks
  ///   are released, and no retry is counted, as when ``run()`` is cancelled. If the limit is zero
  ///   or less, or the call is cancelled before the limit has passed, the attempts are cancelled at
  ///   once.
  public func shutDown(within limit: Duration? = nil) async {
    await core.shutDown(within: limit)
  }

  /// Starts a shutdown as ``shutDown(within:)`` does, without waiting.
  ///
  /// Call this from code that can't wait, such as the event handler of a signal source, a service
  /// group, or a deinitializer. The call acquires locks, so don't make it in a handler that was
  /// installed with the C function `signal`.
  ///
  /// - Parameter limit: how long attempts may continue, as for ``shutDown(within:)``; by default
  ///   until they end. If there are several calls, the limit that ends first applies.
  public nonisolated func beginShutDown(within limit: Duration? = nil) {
    core.beginShutDown(within: limit)
  }

  /// Removes all tasks and values for good, and deletes their storage, such as the store's file.
  ///
  /// The call shuts the queue down, cancels the attempts under way, and waits for them. Every later
  /// call throws, and callers that wait for a task's outcome get an error. The tasks of queues with
  /// other names in the store are removed, too.
  ///
  /// A queue in a ``TaskQueueGroup`` can't be destroyed alone, because it shares the group's store:
  /// this call throws, and the queue continues to run. Call ``TaskQueueGroup/destroy()`` instead.
  ///
  /// - Throws: `CancellationError` if the call is cancelled while it waits for the attempts: then
  ///   the queue is shut down, but its tasks stay. A ``TaskQueueError`` with the code
  ///   ``TaskQueueError/Code/waitsForItself`` if a handler of the queue makes the call, or with the
  ///   code ``TaskQueueError/Code/invalidArgument`` if the queue belongs to a group. Any error of
  ///   the store.
  public func destroy() async throws {
    try await core.destroy()
  }
}

extension TaskQueue {
  /// Pauses the tasks with a name: no further attempt at these tasks starts.
  ///
  /// Attempts under way continue, and so do tasks with other names. Once the call has returned, no
  /// task with the name is claimed until ``resume(name:)``. A task that was already assigned to a
  /// worker may still start. If the calling Swift task is cancelled, the name is paused
  /// nevertheless, but the call does not wait for a claim that has already started. A name can be
  /// paused even if it has no handler.
  ///
  /// The pause applies only to this queue, and is kept in memory, so it ends with the process. To
  /// pause the name in every process that uses the store, call ``pause(name:durability:)``.
  ///
  /// - Parameter name: the name under which the tasks were enqueued, for example a payload type's
  ///   ``TaskPayload/taskName``. A former name is paused separately.
  public func pause(name: String) async {
    await core.gate.pause(name: name)
  }

  /// Undoes ``pause(name:)``.
  ///
  /// This does not end a pause in the store; ``resume(name:durability:)`` does.
  public func resume(name: String) async {
    core.gate.resume(name: name)
  }

  /// The names that are paused, in memory or in the store.
  ///
  /// The queue reads the stored pauses when it first opens the store, for example in ``open()``. In
  /// a shared store, another process may have changed the stored pauses since this queue last read
  /// them; ``storedPause()`` reads them again.
  public nonisolated var pausedNames: Set<String> { core.handlers.pausedNames }
}

extension TaskQueue {
  /// Waits until the queue is idle.
  ///
  /// A queue is idle when no attempt is under way, the results of all attempts are stored, and no
  /// task is available that the queue may perform.
  ///
  /// ```swift
  /// async let run: Void = queue.run()
  /// try await queue.enqueue(contentsOf: uploads)
  /// try await queue.waitUntilIdle()
  /// ```
  /// Tasks that were added before the call are performed first. The call does not wait for:
  /// - tasks with a later date, such as a retry;
  /// - paused tasks, and tasks whose name is paused;
  /// - tasks without a handler.
  ///
  /// A paused queue is idle when its attempts have ended. If the queue is not running, the call
  /// waits for the next run, until that run finds no further task. A call of ``runAvailable()``
  /// that began earlier is not enough, because it does not perform tasks that were added later. By
  /// the time this call returns, another task may have been added, or have become available.
  ///
  /// - Throws: `CancellationError` if the call is cancelled; the queue continues. A
  ///   ``TaskQueueError`` if the queue was shut down (``TaskQueueError/Code/shutDown``), the run
  ///   has ended because its store failed (``TaskQueueError/Code/storeFailed``), or one of the
  ///   queue's handlers makes the call (``TaskQueueError/Code/waitsForItself``). The error that
  ///   keeps the store from being opened.
  public nonisolated func waitUntilIdle() async throws {
    try await core.opened.waitUntilIdle()
  }
}

/// Runs with a budget, for a process that the system wakes for a short time only.
extension TaskQueue {
  /// Performs the available tasks that are expected to end within the budget.
  ///
  /// This is like ``runAvailable()``, but for a process that may run for only a few seconds: an app
  /// in the background, or a function on a server. A task starts only if the last three attempts at
  /// tasks with its name took, on average, no longer than the remaining time. Only attempts in runs
  /// with a budget are measured. A task with a name that was never measured starts, too. Skipped
  /// tasks keep waiting.
  ///
  /// When the budget is used up, the attempts under way are cancelled, and the call waits for their
  /// handlers. Their tasks are released, and no retry is counted. In the average, such an attempt
  /// counts as twice its duration, or as the average so far if that is longer. The call stores the
  /// results after the budget is used up, so keep a second in reserve. It waits for an unavailable
  /// store until the budget is used up, and then throws if the result of an attempt is not stored.
  ///
  /// The averages are kept in the store, and outlast the process. If a name's average exceeds the
  /// whole budget while tasks with the name wait, its oldest measurement is dropped. So one of
  /// these tasks starts in the fourth such run at the latest: one slow attempt does not exclude the
  /// name for good.
  ///
  /// - Parameter budget: how long attempts may continue, measured from the call. This includes the
  ///   time to open the store and to maintain its tasks. If it is zero or less, no task starts.
  /// - Returns: The number of attempts; 0 if the queue is paused, or the store can't be opened and
  ///   read within the budget.
  /// - Throws: The same errors as ``run()``.
  @discardableResult
  public nonisolated func run(within budget: Duration) async throws -> Int {
    try await core.run(within: budget)
  }
}
