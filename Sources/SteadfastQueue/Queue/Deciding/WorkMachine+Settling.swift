/// What the machine lets go: ends of attempts that are to be kept, and tasks that were not begun.
extension WorkMachine {
  /// An attempt has ended; what ended it is still to be kept.
  ///
  /// Whether to wake the finisher.
  mutating func finished(
    _ worker: Int,
    with settlement: Settlement,
    isAttempt: Bool
  ) -> Bool {
    let wakesFinisher = outbox.add(settlement)
    finished(worker, isAttempt: isAttempt)
    return wakesFinisher
  }

  /// The finisher takes what has gathered; `nil` if nothing has, the store has failed, or somebody
  /// else has taken something: who then takes the rest.
  mutating func takeOutbox() -> [Settlement]? { failure == nil ? outbox.take() : nil }

  /// What was taken is kept, or was put back.
  ///
  /// Whether a worker waited for that, and what was asked of the tasks meanwhile.
  mutating func settled() -> (wakesWorkers: Bool, requests: [(TaskID, Directive)]) {
    let (settlements, wakesWorkers) = outbox.settled()
    // A retry may be due at once; in a pass, which it is not for, the settlement tells.
    if mode == .untilStopped { forgetLook() }
    guard !requests.isEmpty else { return (wakesWorkers, []) }
    let asked = settlements.map(\.record.id).compactMap { id in
      requests.removeValue(forKey: id).map { (id, $0) }
    }
    obeys(asked.count)
    return (wakesWorkers, asked)
  }

  /// What was taken could not be kept, and goes back.
  mutating func putBack(_ settlements: [Settlement]) { outbox.putBack(settlements) }

  // MARK: Putting back

  /// Takes what was claimed but not begun: all of it, or the tasks of one name.
  ///
  /// ``wereReturned(_:)`` must follow when it has been put back; until then the tasks are held, so
  /// that what is asked of them is not lost.
  mutating func takeUnbegun(named name: String? = nil) -> [ClaimedTask] {
    let taken = ready.filter { name == nil || $0.record.name == name }
    ready.removeAll { name == nil || $0.record.name == name }
    for task in taken {
      limitedNames.leave(task.record.name)
      returning.insert(task.lease)
    }
    return taken.reversed()
  }

  /// What was not begun has been put back, or waits in the outbox because the store has failed.
  ///
  /// Returns what was asked of the former meanwhile.
  mutating func wereReturned(_ tasks: [ClaimedTask]) -> [(TaskID, Directive)] {
    for task in tasks { returning.remove(task.lease) }
    forgetLook()
    guard !requests.isEmpty else { return [] }
    let asked = tasks.map(\.record.id).compactMap { id in
      isUnsettled(id) ? nil : requests.removeValue(forKey: id).map { (id, $0) }
    }
    obeys(asked.count)
    return asked
  }

  /// Whether a task is being put back.
  func isReturning(_ id: TaskID) -> Bool { returning.contains { $0.id == id } }
}
