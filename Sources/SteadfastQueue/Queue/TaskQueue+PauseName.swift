import Synchronization

extension TaskQueue {
  /// Pauses a name: no further attempt of its tasks begins.
  ///
  /// Attempts under way go on, and so do the tasks of other names. When the call returns, no task
  /// of the name is claimed until ``resume(name:)``. If the calling Swift task is cancelled, the
  /// name is paused all the same, but the waiting ends at once. A task that a worker has already
  /// taken may still begin. The name need not have a handler.
  ///
  /// Only this queue pauses the name, and it does so in memory. The pause does not outlast the
  /// process, and other queues on the same store don't know of it. ``pause(name:durability:)``
  /// pauses the name for all of them.
  ///
  /// - Parameter name: the name that the tasks were enqueued under, for example a payload type's
  ///   ``TaskPayload/taskName``. A former name is paused separately.
  public func pause(name: String) async {
    handlers.pause(name)
    await putBackUnbegun { $0.name == name }
  }

  /// Puts back the claimed tasks that are meant and have not begun.
  ///
  /// The claim in flight may hand out further ones, because it was asked for them before. This
  /// waits for it and puts those back, too. If cancelled, it doesn't wait.
  nonisolated func putBackUnbegun(where isMeant: @Sendable (TaskRecord) -> Bool) async {
    await putBack(machine.withLock { $0.takeUnbegun(where: isMeant) })
    if let claim = machine.withLock({ $0.claims.inFlight }) { await waitForEnd(ofClaim: claim) }
    await putBack(machine.withLock { $0.takeUnbegun(where: isMeant) })
  }

  /// Returns when this claim is not in flight any more, or when cancelled.
  private nonisolated func waitForEnd(ofClaim claim: Int) async {
    while !Task.isCancelled, machine.withLock({ $0.claims.inFlight == claim }) {
      // Cancelled: the loop ends.
      try? await signals.claimEnd.wait {
        machine.withLock { $0.claims.inFlight == claim } ? nil : .success(())
      }
    }
  }

  /// Undoes ``pause(name:)``.
  ///
  /// A pause that the store holds stays: ``resume(name:durability:)`` ends it.
  public func resume(name: String) async {
    handlers.resume(name)
    machine.withLock { $0.workArrived() }
    signals.workers.signalAll()
  }

  /// The names that were paused and not resumed, in memory or in the store.
  ///
  /// What the store says is known from the first call of the queue on, such as ``open()``. In a
  /// shared store, another queue may have changed it since this queue has looked.
  public nonisolated var pausedNames: Set<String> { handlers.pausedNames }
}
