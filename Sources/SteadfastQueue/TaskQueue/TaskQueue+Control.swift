import Synchronization

extension TaskQueue {
  /// Lets no further attempt begin; those under way go on.
  ///
  /// When it returns, none begins until ``resume()``. Tasks are still enqueued, and ``run()`` goes on
  /// without performing any. A queue that is paused and resumed all the time gets on nevertheless:
  /// what a pause has kept from being begun, the next one lets begin, and returns when it has.
  public func pause() async {
    let unbegun = machine.withLock { machine in
      machine.setPaused(true)
      return machine.takeHeldBack()
    }
    await putBack(unbegun)
    while machine.withLock({ $0.letsThrough }) {
      await stepWhilePaused.waitUncancelled {
        machine.withLock { $0.letsThrough } ? nil : ()
      }
    }
  }

  /// Undoes ``pause()``.
  public func resume() async {
    machine.withLock { $0.setPaused(false) }
    stepWhilePaused.resumeAll(with: .success(()))
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
  ///
  /// - Parameter limit: how long attempts may go on; by default until they end. Then they are
  ///   cancelled, put back unharmed as when ``run()`` is cancelled, and waited for. If the waiting is
  ///   cancelled, they are cancelled at once; so they are with a limit of zero or less.
  public func shutDown(within limit: Duration? = nil) async {
    beginShutDown()
    guard let limit, machine.withLock({ $0.mode != nil }) else { return await waitForRunToEnd() }
    await withTaskGroup { group in
      group.addTask { await self.waitForRunToEnd() }
      group.addTask {
        // Cancelled while the run goes on: nobody is left to see to the limit.
        if limit > .zero { try? await self.clock.sleep(for: limit) }
        if self.machine.withLock({ $0.mode != nil }) { self.cutShort() }
        await self.waitForRunToEnd()
      }
      await group.next()
      group.cancelAll()
    }
  }

  private nonisolated func waitForRunToEnd() async {
    // Cancelled: the waiting ends.
    try? await runEnd.wait {
      machine.withLock { $0.mode == nil } ? .success(()) : nil
    }
  }

  private nonisolated func cutShort() {
    machine.withLock { $0.cutShort() }
    for interrupt in interrupts { interrupt.fire() }
  }

  /// Begins what ``shutDown(within:)`` does, without waiting: for signal handlers and deinitializers.
  public nonisolated func beginShutDown() {
    let hasEnded = machine.withLock { machine in
      machine.shutDown()
      return machine.hasEnded
    }
    wake.fireAll()
    if hasEnded { outcomes.failWaiters(Self.shutDownError) }
  }

  /// Removes all tasks and what the store keeps them in, a file for example, for good.
  ///
  /// Attempts under way are cancelled and waited for, and the queue is shut down. Every later call
  /// throws, and whoever waits for a task's outcome gets an error. A handler that called this would
  /// wait for itself.
  ///
  /// - Throws: what the store throws.
  public func destroy() async throws {
    await shutDown(within: .zero)
    await runEnd.waitUncancelled { machine.withLock { $0.mode == nil } ? () : nil }
    try await open()
    try await store.destroy()
    outcomes.failWaiters(TaskQueueError(.destroyed, "the queue was destroyed, with its tasks"))
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
