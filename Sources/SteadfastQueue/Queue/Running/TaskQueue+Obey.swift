import Synchronization

/// Carries out requests that were kept until the queue has let go of their tasks.
extension TaskQueue {
  /// Carries out requests that came while their tasks were being settled or released.
  ///
  /// A request stays if the store fails, and the next run carries it out. The finisher does so if
  /// the store is gone for a while and this Swift task can't wait. At the end this signals
  /// `idleWatch`, even if there were no requests, because the queue may be idle.
  ///
  /// - Parameters:
  ///   - requests: the requests.
  ///   - isLast: whether the run ends, so that no finisher carries them out.
  nonisolated func obey(_ requests: [KeptRequest], isLast: Bool = false) async {
    for request in requests {
      do {
        _ = try await carryOut(request.directive, of: request.id)
        obeyed(request.id)
      } catch let error as TaskQueueError where error.code == .duplicate {
        // The task stays as it is: another one stands for its key.
        obeyed(request.id)
      } catch {
        // A cancelled caller waits for no other call while the store is gone.
        let isGone = error.isTransientFailure || error is CancellationError
        let isLeft =
          !isLast && isGone && Task.isCancelled && machine.withLock { $0.finisherCanWait }
        // First, so that the run does not end without the error.
        if !isLeft {
          let isWait = error is CancellationError && Task.isCancelled && signals.absence.isGone
          let error = isWait ? OtherCallWaits() : error
          fail(error, to: "do what was asked of a task", losing: true)
        }
        // After an error of the queue itself, the next run could not do it, either.
        obeyed(request.id, puttingBack: error is TaskQueueError ? nil : request.directive)
        if isLeft { signals.finisher.signal() }
      }
    }
    signals.idleWatch.step()
  }

  /// Carries out a request in place of an earlier one, which no run does now.
  ///
  /// If it is not carried out, the earlier one stays.
  nonisolated func ask(
    _ directive: Directive,
    of id: TaskID,
    insteadOf earlier: Directive
  ) async throws -> Bool {
    var isDone = false
    defer {
      obeyed(id, puttingBack: isDone ? nil : earlier)
      // A run may have begun.
      signals.finisher.signal()
      signals.idleWatch.step()
    }
    isDone = try await carryOut(directive, of: id)
    return isDone
  }

  /// Waits until no request for a task is being carried out that was kept.
  ///
  /// What is carried out waits for the store, and for no handler. So a handler can wait for it.
  ///
  /// - Throws: `CancellationError` when the caller is cancelled, and the store is gone.
  nonisolated func waitUntilObeyed(_ id: TaskID) async throws {
    try await signals.settlement.wait(
      until: { machine.withLock { !$0.isObeying(id) } },
      orGone: signals.absence
    )
  }

  /// Ends the carrying out of a request, or keeps one for the next run.
  private nonisolated func obeyed(_ id: TaskID, puttingBack directive: Directive? = nil) {
    machine.withLock { machine in
      if let directive { machine.putBack(directive, of: id) }
      machine.obeyed(id)
    }
    signals.settlement.resumeAll(with: .success(()))
  }

  /// Carries out a request that is not to be carried out by anything else now.
  ///
  /// - Returns: Whether the task was there, and in a state to which the request applies.
  private nonisolated func carryOut(_ directive: Directive, of id: TaskID) async throws -> Bool {
    if try await wasCarriedOut(directive, of: id) { return true }
    return try await askOpened(directive, of: id, isObeying: true)
  }

  /// Tells what was asked of a task before, if the store has done it though it failed.
  ///
  /// - Returns: Whether that was the same as is asked now.
  private nonisolated func wasCarriedOut(
    _ directive: Directive,
    of id: TaskID
  ) async throws -> Bool {
    guard let doubt = machine.withLock({ $0.doubt(about: id) }) else { return false }
    try await observers.changes.beginChanges(of: [id])
    defer { observers.changes.changesAreTold(of: [id]) }
    let record = try await record(of: id)
    machine.withLock { $0.setDoubt(nil, about: id) }
    let (change, isAlone) = (doubt.settlement.change, store.sharing == nil)
    // If the task was like that before, a look can't tell.
    guard change.wasStored(leaving: record, isAlone: isAlone),
      !change.wasStored(leaving: doubt.settlement.record, isAlone: isAlone)
    else { return false }
    await wasStored(doubt.settlement)
    await findLostConsequences()
    return doubt.directive == directive
  }

  /// Notes that the store has failed to store what was asked of a task, and may have stored it.
  nonisolated func noteDoubt(_ directive: Directive, _ settlement: Settlement) {
    let doubt = KeptRequest.Doubt(directive: directive, settlement: settlement)
    machine.withLock { $0.setDoubt(doubt, about: settlement.record.id) }
  }
}

/// The error of a request that waits for another call, which waits for the store.
private struct OtherCallWaits: Error, CustomStringConvertible {
  var description: String { "it is gone, and another call for the task waits for it" }
}
