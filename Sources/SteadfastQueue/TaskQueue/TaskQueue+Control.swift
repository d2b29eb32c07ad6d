import Synchronization

extension TaskQueue {
  /// Lets no further attempt begin; those under way go on.
  ///
  /// Tasks are still enqueued, and ``run()`` goes on without performing any.
  public func pause() async { machine.withLock { $0.setPaused(true) } }

  /// Undoes ``pause()``.
  public func resume() async {
    machine.withLock { $0.setPaused(false) }
    wake.fireAll()
  }

  /// Whether the queue was paused and not resumed.
  public nonisolated var isPaused: Bool { machine.withLock { $0.isPaused } }

  /// Whether an attempt is under way.
  public nonisolated var isProcessing: Bool { machine.withLock { $0.performing > 0 } }

  /// Lets no further attempt begin, for good, and waits until those under way have ended.
  ///
  /// ``run()`` then returns. Tasks can still be enqueued and looked up; they wait for a queue that
  /// is made anew on the same store. Whoever waits for the outcome of a task that has not ended
  /// gets an error. If the waiting is cancelled, it ends at once and the shutting down goes on.
  ///
  /// A handler that called this would wait for itself; it calls ``beginShutDown()``.
  public func shutDown() async {
    beginShutDown()
    try? await runEnd.wait {
      machine.withLock { $0.mode == nil } ? .success(()) : nil
    }
  }

  /// Begins what ``shutDown()`` does, without waiting: for signal handlers and deinitializers.
  public nonisolated func beginShutDown() {
    let hasEnded = machine.withLock { machine in
      machine.shutDown()
      return machine.hasEnded
    }
    wake.fireAll()
    if hasEnded { outcomes.failWaiters(Self.shutDownError) }
  }

  /// Whether no task will be performed any more.
  nonisolated var hasEnded: Bool { machine.withLock { $0.hasEnded } }

  static var shutDownError: TaskQueueError {
    TaskQueueError(
      .shutDown,
      "the queue was shut down before the task ended; the task is kept by its store"
    )
  }
}
