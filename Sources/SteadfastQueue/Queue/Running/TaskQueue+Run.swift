import Synchronization

extension TaskQueue {
  /// Performs tasks until it is cancelled or the queue is shut down.
  ///
  /// Handlers run in child tasks of this call, so cancelling the call cancels them, too. A task
  /// whose handler then throws is released, with no retry counted. When all handlers have ended,
  /// the call throws `CancellationError`. After ``shutDown(within:)``, it returns, also if the
  /// store is still being opened.
  ///
  /// - Throws: `CancellationError`; the error that keeps the store from being opened; a
  ///   ``TaskQueueError`` if the queue or another one on its store already runs, if the queue was
  ///   shut down, or if its store has failed. After a failure of the store, nothing acknowledged is
  ///   lost. Either run this queue again, which still has the results of the last attempts and the
  ///   requests for their tasks, or close the store and make a new queue with a new store. Calls
  ///   that wait for outcomes keep waiting, so check what the run throws, as a task group does.
  public nonisolated func run() async throws { try await core.run(.untilStopped) }

  /// Performs the tasks that are available now, and returns when they are done.
  ///
  /// A task that fails is not tried again in the same pass, even if its retry is due at once. A
  /// task that is enqueued during the pass, by a handler too, becomes available after the date of
  /// the call, so it is left for the next pass. On a clock that stands still during the pass, as in
  /// a test, it is performed in the same pass. To wait for all tasks, call ``waitUntilIdle()``
  /// while ``run()`` performs them.
  ///
  /// - Returns: The number of attempts; 0 if the queue is paused.
  /// - Throws: The same errors as ``run()``.
  @discardableResult
  public nonisolated func runAvailable() async throws -> Int {
    try await core.runPass()
  }
}

extension TaskQueue {
  /// Pauses the queue: no further attempt begins, and those under way go on.
  ///
  /// Only this queue is paused, in memory. To pause every queue on the store, beyond the end of the
  /// process, call ``pause(durability:)``.
  ///
  /// When the call returns, no attempt begins until ``resume()``. An attempt is under way as soon
  /// as a worker picks its task, which is before the handler is called; for a recurring task, the
  /// worker reads the store in between. If the calling Swift task is cancelled, the queue is paused
  /// all the same, but the waiting ends at once. Tasks can still be enqueued, and ``run()``
  /// continues without performing any.
  ///
  /// A queue that is paused and resumed again and again still makes progress. If a pause releases
  /// claimed tasks before they start, the next pause lets its claimed tasks start, and returns
  /// after they have started.
  public func pause() async {
    await core.gate.pause()
  }

  /// Undoes ``pause()``.
  ///
  /// A pause in the store remains: ``resume(durability:)`` ends it.
  public func resume() async {
    core.gate.resume()
  }

  /// Whether the queue was paused and not resumed, in memory or in its store.
  ///
  /// The stored pause is known after the queue's first call, such as ``open()``. In a shared store,
  /// another queue may have changed the pause since this queue last read it.
  public nonisolated var isPaused: Bool { core.dispatch.machine.withLock { $0.isPaused } }

  /// Whether an attempt is under way.
  public nonisolated var isProcessing: Bool {
    core.dispatch.machine.withLock { $0.performing > 0 }
  }

  /// Stops the queue for good: no further attempt begins, and the call waits until those under way
  /// have ended.
  ///
  /// ``run()`` then returns. Tasks can still be enqueued and looked up; they wait for a new queue
  /// on the same store. Once the new queue runs, enqueue with it: it does not notice tasks that
  /// another queue adds. A call that waits for the outcome of a task that has not ended throws.
  /// Observers get no more events. The queue releases its handlers, and everything that they
  /// reference. If the waiting is cancelled, it ends at once and the shutdown goes on.
  ///
  /// Without a limit, a call from a handler of the queue, or from something that the handler
  /// started, returns at once, as ``beginShutDown(within:)`` does: it would wait for itself.
  ///
  /// - Parameter limit: how long attempts may go on; by default until they end. When the limit has
  ///   passed, the attempts are cancelled, their tasks are released unharmed as when ``run()`` is
  ///   cancelled, and the call waits for their handlers. If the waiting is cancelled, or the limit
  ///   is zero or less, the attempts are cancelled at once.
  public func shutDown(within limit: Duration? = nil) async {
    await core.shutDown(within: limit)
  }

  /// Starts a shutdown as ``shutDown(within:)`` does, without waiting.
  ///
  /// It is for code that can't wait, such as the event handler of a signal source, a service group,
  /// or a deinitializer. It acquires locks, so don't call it in the handler of the C function
  /// `signal` itself.
  ///
  /// - Parameter limit: how long attempts may go on, as for ``shutDown(within:)``; by default until
  ///   they end. Of several calls, the one whose limit ends first counts.
  public nonisolated func beginShutDown(within limit: Duration? = nil) {
    core.beginShutDown(within: limit)
  }

  /// Removes all tasks and values for good, with the storage behind them, such as the store's file.
  ///
  /// It cancels the attempts under way, waits for them, and shuts the queue down. Every later call
  /// throws, and callers that wait for a task's outcome get an error.
  ///
  /// A queue of a ``TaskQueueGroup`` throws, and continues to run: it shares the group's store,
  /// which can only be destroyed as a whole (``TaskQueueGroup/destroy()``).
  ///
  /// - Throws: `CancellationError` if it is cancelled while it waits for the attempts: then the
  ///   queue is shut down, and its tasks stay. A ``TaskQueueError`` with the code
  ///   ``TaskQueueError/Code/waitsForItself`` if a handler of the queue calls it, or with the code
  ///   ``TaskQueueError/Code/invalidArgument`` if the queue belongs to a group. Any error of the
  ///   store.
  public func destroy() async throws {
    try await core.destroy()
  }
}

extension TaskQueue {
  /// Pauses a name: no further attempt at its tasks starts.
  ///
  /// Attempts in progress continue, and so do the tasks of other names. When the call has returned,
  /// no task of the name is claimed until ``resume(name:)``. If the calling Swift task is
  /// cancelled, the name is paused nevertheless, but the call does not wait. A task that is already
  /// assigned to a worker may still start. The name need not have a handler.
  ///
  /// The pause applies only to this queue, and is kept in memory. It ends with the process, and
  /// other queues on the same store don't know of it. ``pause(name:durability:)`` pauses the name
  /// for all of them.
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
  /// The names that are paused in the store are known after the first call of the queue, such as
  /// ``open()``. In a shared store, another queue may have changed them since this queue last read
  /// them.
  public nonisolated var pausedNames: Set<String> { core.handlers.pausedNames }
}

extension TaskQueue {
  /// Waits until the queue is idle.
  ///
  /// A queue is idle when no attempt is under way, the ends of the last attempts are stored, and no
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
  /// A paused queue is idle when its attempts have ended. If the queue does not run, the call waits
  /// until it has run and found nothing more to do. The same holds for a pass (``runAvailable()``)
  /// that began before the call, because the pass performs nothing that was added since. By the
  /// time the call returns, another task may have been added, or have become available.
  ///
  /// - Throws: `CancellationError` when the waiting is cancelled; the queue goes on. A
  ///   ``TaskQueueError`` if the queue was shut down (``TaskQueueError/Code/shutDown``), the run
  ///   has ended because its store failed (``TaskQueueError/Code/storeFailed``), or one of the
  ///   queue's handlers calls it (``TaskQueueError/Code/waitsForItself``). The error that keeps the
  ///   store from being opened.
  public nonisolated func waitUntilIdle() async throws {
    try await core.opened.waitUntilIdle()
  }
}

/// Runs with a budget, for a process that the system wakes for a short time only.
extension TaskQueue {
  /// Performs the available tasks that are expected to end in time.
  ///
  /// It is like ``runAvailable()``, but for a process that may run for only a few seconds: an app
  /// in the background, or a function on a server. A task starts only if the last three attempts of
  /// its name in such runs took, on average, no longer than the remaining time. A name without
  /// measurements is tried. Skipped tasks keep waiting.
  ///
  /// When the time is up, the attempts under way are cancelled and their tasks released unharmed,
  /// with no retry counted, and the call waits for their handlers. In the average, such an attempt
  /// counts as twice the time that it had, or as the average so far if that is longer. The results
  /// are stored after that, so keep a second in reserve. The call waits for an unavailable store
  /// until the time is up, and then throws if the result of an attempt is not stored.
  ///
  /// The averages are stored as a value, and outlast the process. If a name's average exceeds the
  /// whole budget while its tasks wait, its oldest measurement is dropped. So the name is tried
  /// again in the fourth such run at the latest: one slow attempt does not exclude it for good.
  ///
  /// - Parameter budget: how long attempts may go on, measured from the call, so including the time
  ///   to open the store and to maintain its tasks. With zero or less, nothing is performed.
  /// - Returns: The number of attempts; 0 if the queue is paused, or the store can't be opened and
  ///   read in time.
  /// - Throws: The same errors as ``run()``.
  @discardableResult
  public nonisolated func run(within budget: Duration) async throws -> Int {
    try await core.run(within: budget)
  }
}
