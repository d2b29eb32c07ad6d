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
  ///   lost. Run this queue again, which knows how the last attempts ended and what was asked of
  ///   their tasks, or close the store and make a new queue with a new store. Calls that wait for
  ///   outcomes keep waiting, so check what the run throws, as a task group does.
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
  /// as a worker has taken its task, which is before the handler is called; for a recurring task,
  /// the worker looks into the store in between. If the calling Swift task is cancelled, the queue
  /// is paused all the same, but the waiting ends at once. Tasks are still enqueued, and ``run()``
  /// goes on without performing any.
  ///
  /// A queue that is paused and resumed again and again still makes progress. If a pause releases
  /// claimed tasks before they begin, the next pause lets the claimed tasks begin, and returns when
  /// they have.
  public func pause() async {
    await core.gate.pause()
  }

  /// Undoes ``pause()``.
  ///
  /// A pause that the store holds stays: ``resume(durability:)`` ends it.
  public func resume() async {
    core.gate.resume()
  }

  /// Whether the queue was paused and not resumed, in memory or in its store.
  ///
  /// What the store says is known from the first call of the queue on, such as ``open()``. In a
  /// shared store, another queue may have changed it since this queue has looked.
  public nonisolated var isPaused: Bool { core.dispatch.machine.withLock { $0.isPaused } }

  /// Whether an attempt is under way.
  public nonisolated var isProcessing: Bool {
    core.dispatch.machine.withLock { $0.performing > 0 }
  }

  /// Lets no further attempt begin, for good, and waits until those under way have ended.
  ///
  /// ``run()`` then returns. Tasks can still be enqueued and looked up; they wait for a new queue
  /// on the same store. Once the new queue runs, enqueue with it: it does not notice what another
  /// queue adds. A call that waits for the outcome of a task that has not ended throws. Observers
  /// get no more events. The queue drops its handlers, with everything that they hold. If the
  /// waiting is cancelled, it ends at once and the shutdown goes on.
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

  /// Begins what ``shutDown(within:)`` does, without waiting.
  ///
  /// It is for code that can't wait, such as the event handler of a signal source, a service group,
  /// or a deinitializer. It takes locks, so don't call it in the handler of the C function `signal`
  /// itself.
  ///
  /// - Parameter limit: how long attempts may go on, as for ``shutDown(within:)``; by default until
  ///   they end. Of several calls, the one whose limit ends first counts.
  public nonisolated func beginShutDown(within limit: Duration? = nil) {
    core.beginShutDown(within: limit)
  }

  /// Removes all tasks and values for good, and what the store keeps them in, a file for example.
  ///
  /// It cancels the attempts under way, waits for them, and shuts the queue down. Every later call
  /// throws, and callers that wait for a task's outcome get an error.
  ///
  /// A queue of a ``TaskQueueGroup`` refuses, and goes on: its store is that of the group, which
  /// can be destroyed as a whole (``TaskQueueGroup/destroy()``).
  ///
  /// - Throws: `CancellationError` when it is cancelled while it waits for the attempts: then the
  ///   queue is shut down, and its tasks stay. A ``TaskQueueError`` with the code
  ///   ``TaskQueueError/Code/waitsForItself`` if a handler of the queue calls it, or with the code
  ///   ``TaskQueueError/Code/invalidArgument`` if the queue is one of a group. What the store
  ///   throws.
  public func destroy() async throws {
    try await core.destroy()
  }
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
  /// A paused queue is idle when its attempts have ended. A queue that does not run does nothing:
  /// the call waits until the queue has run and found nothing more to do. The same holds for a
  /// pass (``runAvailable()``) that began before the call, because it performs nothing that was
  /// added since. By the time the call returns, a task may have been added again, or another may
  /// have become available.
  ///
  /// - Throws: `CancellationError` when the waiting is cancelled; the queue goes on. A
  ///   ``TaskQueueError`` if the queue was shut down (``TaskQueueError/Code/shutDown``), the run
  ///   has ended because its store failed (``TaskQueueError/Code/storeFailed``), or one of the
  ///   queue's handlers calls it (``TaskQueueError/Code/waitsForItself``). What keeps the store
  ///   from being opened.
  public nonisolated func waitUntilIdle() async throws {
    try await core.opened.waitUntilIdle()
  }
}

/// Runs that have a limited time, as a process has that the system has woken for a while.
extension TaskQueue {
  /// Performs the tasks that are available now and can be expected to end in time.
  ///
  /// It is ``runAvailable()`` for a process that may run for some seconds only: an app in the
  /// background, a function on a server. A task begins only if the last three attempts of its name
  /// in such runs took, on average, no longer than what is left of the time. A name of which none
  /// was measured is tried. Tasks that are left out wait as before.
  ///
  /// When the time is up, the attempts under way are cancelled and their tasks released unharmed,
  /// with no retry counted, and the call waits for their handlers. Such an attempt counts for the
  /// average with twice the time that it had, or with the average so far if that is longer. The
  /// ends are stored after that, so keep a second in reserve. A store that is gone is waited for
  /// until the time is up: then the call throws if the end of an attempt is not stored.
  ///
  /// The averages are a value of the store, and outlast the process. If a name's average is longer
  /// than the whole time while tasks of it wait, its oldest attempt is forgotten. So it is tried
  /// again in the fourth such run at the latest: one slow attempt does not exclude its name for
  /// good.
  ///
  /// - Parameter budget: how long attempts may go on, from the call on, including the time in which
  ///   the store is opened and the queue looks after what it keeps. With zero or less, nothing is
  ///   performed.
  /// - Returns: The number of attempts; 0 if the queue is paused, or the store can't be opened and
  ///   read in time.
  /// - Throws: The same errors as ``run()``.
  @discardableResult
  public nonisolated func run(within budget: Duration) async throws -> Int {
    try await core.run(within: budget)
  }
}
