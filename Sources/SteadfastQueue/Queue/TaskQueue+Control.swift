import SteadfastRetry
import Synchronization

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
    await holdBack { $0.setPaused(true) }
    await waitForLastAttempts()
  }

  /// Puts back the claimed tasks that may not begin because of a pause.
  nonisolated func holdBack(_ pause: (inout WorkMachine) -> Void = { _ in }) async {
    let unbegun = machine.withLock { machine in
      pause(&machine)
      return machine.takeHeldBack()
    }
    await putBack(unbegun)
    signals.idleWatch.step()
  }

  /// Waits for the attempts that begin although the queue is paused, or until cancelled.
  nonisolated func waitForLastAttempts() async {
    while !Task.isCancelled, machine.withLock({ $0.letsThrough }) {
      // Cancelled: the loop ends.
      try? await signals.pauseProgress.wait {
        machine.withLock { $0.letsThrough } ? nil : .success(())
      }
    }
  }

  /// Undoes ``pause()``.
  ///
  /// A pause that the store holds stays: ``resume(durability:)`` ends it.
  public func resume() async {
    machine.withLock { $0.setPaused(false) }
    signals.pauseProgress.resumeAll(with: .success(()))
    signals.workers.signalAll()
  }

  /// Whether the queue was paused and not resumed, in memory or in its store.
  ///
  /// What the store says is known from the first call of the queue on, such as ``open()``. In a
  /// shared store, another queue may have changed it since this queue has looked.
  public nonisolated var isPaused: Bool { machine.withLock { $0.isPaused } }

  /// Whether an attempt is under way.
  public nonisolated var isProcessing: Bool { machine.withLock { $0.performing > 0 } }

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
    beginShutDown(within: limit)
    if limit == nil, callingTask != nil { return }
    do {
      try await signals.runEnd.wait { machine.withLock { $0.mode == nil } ? .success(()) : nil }
    } catch {
      // The waiting is cancelled.
      if limit != nil { cutShort() }
    }
  }

  /// Cuts attempts short when the limit of ``beginShutDown(within:)`` has passed.
  nonisolated func keepToShutDownLimit() async {
    if await signals.shutDownLimit.hasPassed(by: time) { cutShort() }
  }

  private nonisolated func cutShort() {
    machine.withLock { $0.cutShort() }
    stopMayHaveCome()
    for interrupt in signals.interrupts { interrupt.signal() }
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
    // A longer limit makes no difference.
    if let limit {
      signals.shutDownLimit.set(time.stopwatch() + min(max(limit, .zero), .seconds(Int64(1) << 32)))
    }
    let hasEnded = machine.withLock { machine in
      machine.shutDown()
      return machine.hasEnded
    }
    stopMayHaveCome()
    if hasEnded { end() }
  }

  /// Ends the queue: fails waiting callers, ends the events, and drops the handlers.
  ///
  /// It is called when nothing is performed any more.
  nonisolated func end() {
    // A handler may hold its queue, which would then never be freed.
    handlers.close()
    failWaiters()
    observers.events.end()
  }

  /// Fails waiting callers, if it is known what becomes of the tasks.
  private nonisolated func failWaiters() {
    guard let error = machine.withLock({ $0.reasonToFailWaiters }) else { return }
    observers.outcomes.failWaiters(error)
    signals.idleWatch.step()
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
    try checkCanBeDestroyed()
    if let group = backing.group { throw group.isDestroyedAsAWhole }
    try await Self.destroying([self]) {
      await shutDown(within: .zero)
      try await waitToBeDestroyed()
      try await store.destroy()
    }
  }

  /// Performs the body, which destroys queues, and tells waiting callers then what has become of
  /// their tasks.
  static nonisolated func destroying(
    _ queues: [TaskQueue],
    _ body: () async throws -> Void
  ) async throws {
    func tell(_ destruction: WorkMachine.Destruction) {
      for queue in queues {
        // A later call can't bring the tasks back.
        queue.machine.withLock { if $0.destruction != .done { $0.destruction = destruction } }
        queue.failWaiters()
      }
    }
    tell(.underWay)
    do {
      try await body()
    } catch {
      tell(.none)
      throw error
    }
    tell(.done)
  }

  /// Refuses a call of a handler, which would wait for itself.
  nonisolated func checkCanBeDestroyed() throws(TaskQueueError) {
    guard let task = callingTask else { return }
    throw TaskQueueError(
      .waitsForItself,
      "the handler of the task \(task) has called destroy() of its queue '\(name)', or of its group, "
        + "which waits until the handlers have ended; call it when run() has returned"
    )
  }

  /// Waits until a queue that is shut down uses its store no more.
  nonisolated func waitToBeDestroyed() async throws {
    try await signals.runEnd.wait { machine.withLock { $0.mode == nil } ? .success(()) : nil }
  }

  /// Whether no task will be performed any more.
  nonisolated var hasEnded: Bool { machine.withLock { $0.hasEnded } }
}
