import SteadfastRetry
import Synchronization

extension TaskQueue {
  /// Lets no further attempt begin; those under way go on.
  ///
  /// When it returns, none begins until ``resume()``, unless its Swift task is cancelled: then the
  /// queue is paused all the same, and the waiting ends at once. Tasks are still enqueued, and
  /// ``run()`` goes on without performing any. A queue that is paused and resumed all the time gets
  /// on nevertheless: what a pause has kept from being begun, the next one lets begin, and returns
  /// when it has.
  public func pause() async {
    let unbegun = machine.withLock { machine in
      machine.setPaused(true)
      return machine.takeHeldBack()
    }
    await putBack(unbegun)
    idleWatch.step()
    while !Task.isCancelled, machine.withLock({ $0.letsThrough }) {
      // Cancelled: the loop ends.
      try? await stepWhilePaused.wait {
        machine.withLock { $0.letsThrough } ? nil : .success(())
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
  /// ``run()`` then returns. Tasks can still be enqueued and looked up; they wait for a new queue on
  /// the same store. Once the new queue runs, enqueue with it: it does not notice what another queue
  /// adds. A call that waits for the outcome of a task that has not ended throws, observers are told
  /// nothing more, and the handlers are let go, with all that they hold. If the waiting is cancelled,
  /// it ends at once and the shutdown goes on.
  ///
  /// Without a limit, a call from a handler of the queue, or from what that has started, returns at
  /// once, as ``beginShutDown(within:)`` does: it would wait for itself.
  ///
  /// - Parameter limit: how long attempts may go on; by default until they end. Then they are
  ///   cancelled, put back unharmed as when ``run()`` is cancelled, and waited for. If the waiting is
  ///   cancelled, they are cancelled at once; so they are with a limit of zero or less.
  public func shutDown(within limit: Duration? = nil) async {
    beginShutDown()
    guard let limit, machine.withLock({ $0.mode != nil }) else {
      if callingTask == nil { await waitForRunToEnd() }
      return
    }
    await withTaskGroup { group in
      group.addTask { await self.waitForRunToEnd() }
      group.addTask {
        // Cancelled while the run goes on: nobody is left to see to the limit.
        if limit > .zero { try? await self.clock.wait(for: limit) }
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

  /// Cuts attempts short when the limit of ``beginShutDown(within:)`` has passed.
  nonisolated func keepToShutDownLimit() async {
    if await shutDownLimit.hasPassed(on: clock, stopwatch) { cutShort() }
  }

  private nonisolated func cutShort() {
    machine.withLock { $0.cutShort() }
    lookForStop()
    for interrupt in interrupts { interrupt.fire() }
  }

  /// Begins what ``shutDown(within:)`` does, without waiting: for code that can't wait, such as
  /// the event handler of a signal source, a service group, or a deinitializer.
  ///
  /// It takes locks, and so can't be called in the handler of the C function `signal` itself.
  ///
  /// - Parameter limit: how long attempts may go on, as for ``shutDown(within:)``; by default until
  ///   they end. Of several calls the one whose limit ends first counts.
  public nonisolated func beginShutDown(within limit: Duration? = nil) {
    // No limit that is longer makes a difference.
    if let limit { shutDownLimit.set(stopwatch() + min(max(limit, .zero), .seconds(1 << 32))) }
    let hasEnded = machine.withLock { machine in
      machine.shutDown()
      return machine.hasEnded
    }
    lookForStop()
    if hasEnded { end() }
  }

  /// Nothing is performed any more: tells those who wait, and lets go what is of no use.
  nonisolated func end() {
    // A handler may hold its queue, which would never be freed.
    handlers.close()
    outcomes.failWaiters(Self.shutDownError)
    hub.end()
    idleWatch.step()
  }

  /// Has all those look who wait for something that the end of a run leaves undone.
  nonisolated func lookForStop() {
    wake.fireAll()
    stepWhilePaused.resumeAll(with: .success(()))
  }

  /// Removes all tasks and what the store keeps them in, a file for example, for good.
  ///
  /// Attempts under way are cancelled and waited for, and the queue is shut down. Every later call
  /// throws, and who waits for a task's outcome gets an error.
  ///
  /// - Throws: `CancellationError` when it is cancelled while it waits for the attempts: then the
  ///   queue is shut down, and its tasks stay. A ``TaskQueueError`` with the code
  ///   ``TaskQueueError/Code/waitsForItself`` if a handler of the queue calls it. What the store
  ///   throws.
  public func destroy() async throws {
    if let task = callingTask {
      throw TaskQueueError(
        .waitsForItself,
        "the handler of the task \(task) has called destroy() of its queue '\(name)', which waits "
          + "until the handlers have ended; call it when run() has returned"
      )
    }
    await shutDown(within: .zero)
    try await runEnd.wait { machine.withLock { $0.mode == nil } ? .success(()) : nil }
    // Though a handler was refused.
    try await store.open()
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
