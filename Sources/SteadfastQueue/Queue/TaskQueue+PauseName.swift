import Synchronization

extension TaskQueue {
  /// Lets no further attempt of the tasks of a name begin; those under way go on, and so do the
  /// tasks of other names.
  ///
  /// When it returns, none is claimed until ``resume(name:)``, unless its Swift task is cancelled:
  /// then the name is paused all the same, and the waiting ends at once. What a worker has in hand by
  /// then may still begin. The name need not have a handler.
  ///
  /// This queue alone pauses it, and remembers that in memory: not after a restart of the process, and
  /// not for other queues on the same store.
  ///
  /// - Parameter name: what the tasks were enqueued under; a payload type's
  ///   ``TaskPayload/taskName``, for example. Former names are names of their own.
  public func pause(name: String) async {
    handlers.pause(name)
    await putBack(machine.withLock { $0.takeUnbegun(named: name) })
    // The claim in flight may have asked for the name.
    if let claim = machine.withLock({ $0.claimInFlight }) { await waitForEnd(ofClaim: claim) }
    await putBack(machine.withLock { $0.takeUnbegun(named: name) })
  }

  /// Returns when this claim is no more in flight, or when cancelled.
  private nonisolated func waitForEnd(ofClaim claim: Int) async {
    while !Task.isCancelled, machine.withLock({ $0.claimInFlight == claim }) {
      // Cancelled: the loop ends.
      try? await claimEnd.wait {
        machine.withLock { $0.claimInFlight == claim } ? nil : .success(())
      }
    }
  }

  /// Undoes ``pause(name:)``.
  public func resume(name: String) async {
    handlers.resume(name)
    machine.withLock { $0.workArrived() }
    wake.fireAll()
  }

  /// The names that were paused and not resumed.
  public nonisolated var pausedNames: Set<String> { handlers.pausedNames }
}
