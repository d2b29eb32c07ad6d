/// What the machine lets go of: settlements to store, and claimed tasks that were not begun.
extension WorkMachine {
  /// Ends a worker's attempt, whose settlement is still to be stored.
  ///
  /// - Returns: Whether to wake the finisher.
  mutating func finished(
    _ worker: Int,
    with settlement: Settlement,
    isAttempt: Bool
  ) -> Bool {
    let wakesFinisher = outbox.add(settlement)
    finished(worker, isAttempt: isAttempt)
    return wakesFinisher
  }

  /// Takes the settlements that have gathered in the outbox.
  ///
  /// - Returns: The settlements; `nil` if there are none, if the store has failed, or if another
  ///   caller is still storing some. That caller then takes the rest.
  mutating func takeOutbox() -> [Settlement]? { failure == nil ? outbox.take() : nil }

  /// Ends the storing of the settlements that were taken: they are stored, or back in the outbox.
  ///
  /// - Returns: Whether a worker waited for room, and what was asked of the tasks during the
  ///   storing.
  mutating func settled() -> (wakesWorkers: Bool, requests: [KeptRequest]) {
    let (settlements, wakesWorkers) = outbox.settled()
    // A retry may be due at once, but not in the same pass: there, `wereStored(_:)` notes new work.
    if mode == .untilStopped { claims.forgetLook() }
    guard !requests.isEmpty else { return (wakesWorkers, []) }
    return (wakesWorkers, settlements.compactMap { takeRequest(of: $0.record.id) })
  }

  /// Returns settlements to the outbox that could not be stored.
  mutating func putBack(_ settlements: [Settlement]) { outbox.putBack(settlements) }

  // MARK: Claimed tasks that were not begun

  /// Takes the next one.
  mutating func takeReady() -> ClaimedTask? {
    // Take a single task without changing the array, which the caller that claimed it still holds.
    guard ready.count == 1 else { return ready.popLast() }
    defer { ready = [] }
    return ready[0]
  }

  /// Takes the claimed tasks that may not begin because of a pause.
  mutating func takeHeldBack() -> [ClaimedTask] {
    guard isPaused, !owesAttempt, !ready.isEmpty else { return [] }
    owesAttempt = true
    return takeUnbegun()
  }

  /// Whether an attempt may begin although the queue is paused.
  var letsThrough: Bool {
    isPaused && owesAttempt && mode != nil && !isStopping && (claims.isInFlight || !ready.isEmpty)
  }

  /// Takes the tasks that were claimed but not begun: all of them, or those that are meant.
  ///
  /// When they have been released, ``wereReturned(_:)`` must follow. Until then the queue holds the
  /// tasks, so that requests for them are not lost.
  mutating func takeUnbegun(
    where isMeant: (TaskRecord) -> Bool = { _ in true }
  ) -> [ClaimedTask] {
    let taken = ready.filter { isMeant($0.record) }
    ready.removeAll { isMeant($0.record) }
    for task in taken {
      concurrencyLimits.leave(task.record.name)
      returning.insert(task.lease)
    }
    return taken.reversed()
  }

  /// Whether more tasks are claimed and not begun than there are idle workers.
  var isAhead: Bool { ready.count > idle }

  /// Takes the tasks that were claimed ahead together with one that was interrupted before.
  mutating func takeTooMany() -> [ClaimedTask] {
    guard isAhead && ahead.isCareful else { return [] }
    // The next one is the last.
    let tooMany = Set(ready.prefix(ready.count - idle).map(\.record.id))
    return takeUnbegun { tooMany.contains($0.id) }
  }

  /// Takes the tasks of this claim that no worker has begun, because attempts take longer than they
  /// did.
  mutating func takeOverdue(ofClaim number: Int) -> [ClaimedTask] {
    guard claims.count == number, !claims.isInFlight, isAhead else { return [] }
    ahead.waitedTooLong()
    return takeUnbegun()
  }

  /// Ends the release of tasks that were not begun.
  ///
  /// They were released, or wait in the outbox because the store has failed.
  ///
  /// - Returns: What was asked of the released tasks during the release.
  mutating func wereReturned(_ tasks: [ClaimedTask]) -> [KeptRequest] {
    for task in tasks { returning.remove(task.lease) }
    claims.forgetLook()
    guard !requests.isEmpty else { return [] }
    return tasks.compactMap { isUnsettled($0.record.id) ? nil : takeRequest(of: $0.record.id) }
  }

  /// Returns whether a task is being released.
  func isReturning(_ id: TaskID) -> Bool { returning.contains { $0.id == id } }

  /// Whether the finisher can wait for a store that is gone for a while.
  var finisherCanWait: Bool { mode != nil && !wasCancelled && !cutsShort }

  // MARK: Requests

  /// Returns whether the request for a task stays when a run ends.
  ///
  /// By then, only tasks in the outbox, and tasks that a pause is releasing, are still leased.
  func outlastsRun(_ id: TaskID) -> Bool {
    outbox.isWaiting(id) || isReturning(id) || unobeyed.contains(id)
  }

  /// Takes the requests that could not be carried out; ``obeyed(_:)`` follows.
  ///
  /// - Returns: The requests; none if the store has failed.
  mutating func takeUnobeyed() -> [KeptRequest] {
    guard failure == nil, !unobeyed.isEmpty else { return [] }
    let ids = unobeyed
    unobeyed = []
    return ids.compactMap { takeRequest(of: $0) }
  }

  /// Takes the request for a task that the queue lets go of, to carry it out; ``obeyed(_:)``
  /// follows.
  mutating func takeRequest(of id: TaskID) -> KeptRequest? {
    guard !requests.isEmpty, let request = requests.removeValue(forKey: id) else { return nil }
    obeying.append(request)
    return request
  }

  /// Ends the carrying out of the request for a task: it is done, or was put back.
  mutating func obeyed(_ id: TaskID) {
    if let index = obeying.firstIndex(where: { $0.id == id }) { obeying.remove(at: index) }
    claims.forgetLook()
  }

  /// Returns whether something was asked of a task that is not done yet.
  func hasRequest(for id: TaskID) -> Bool { requests[id] != nil || isObeying(id) }

  /// Returns whether a request for a task is being carried out.
  func isObeying(_ id: TaskID) -> Bool { obeying.contains { $0.id == id } }

  /// Returns the doubt of the request for a task that is being carried out.
  func doubt(about id: TaskID) -> KeptRequest.Doubt? { obeying.first { $0.id == id }?.doubt }

  mutating func setDoubt(_ doubt: KeptRequest.Doubt?, about id: TaskID) {
    guard let index = obeying.firstIndex(where: { $0.id == id }) else { return }
    obeying[index].doubt = doubt
  }
}
