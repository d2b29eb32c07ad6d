extension TaskTable {
  mutating func apply(_ batch: [TaskChange]) -> [ChangeOutcome] {
    if batch.count == 1 {
      if case .insert(let record, _) = batch[0], record.uniqueKey == nil {
        return insertAtOnce(record).inArray
      }
      return commit(stage(batch[0])).inArray
    }
    return stage(batch).map { commit($0) }
  }

  /// Stages the changes of a batch in order; if one of them causes the batch to be refused, none of
  /// them stays staged.
  ///
  /// If a change to a stored value expects another value than the current one, every change has the
  /// outcome `.valueDiffers`.
  mutating func stage(_ batch: [TaskChange]) -> [StagedChange] {
    var staged: [StagedChange] = []
    staged.reserveCapacity(batch.count)
    for change in batch { staged.append(stage(change)) }
    guard staged.contains(where: \.causesBatchRefusal) else { return staged }
    for change in staged.reversed() { rollBack(change) }
    let valueDiffers = staged.contains { $0.outcome == .valueDiffers }
    return staged.map { valueDiffers ? .valueDiffers : $0.refused() }
  }

  mutating func stage(_ change: TaskChange) -> StagedChange {
    switch change {
    case .insert(let record, let policy):
      return stageInsertion(of: record, policy)
    case .move(let target, let move):
      let slot = slot(of: target) { move.state(from: $0) != nil }
      if move.yieldsToSuccessor { return stageRetry(change, move, of: slot) }
      if move.takesKey { return stageRestart(change, of: slot) }
      return stage(change, of: slot)
    case .end(let target, let end):
      let slot = slot(of: target) { !$0.isFinished }
      if end.state == .succeeded { return stage(change, of: slot) }
      if let slot { entries[slot].isFailing = true }
      return stageWithDependents(change, of: slot)
    case .extend(let lease, _), .memory(.suspend(let lease, _, _, _)):
      return stage(change, of: slot(ofClaimed: lease))
    // Only one queue uses this table, and knows the commands for the tasks that it performs.
    case .command: return .stale
    case .memory(let change):
      return stageMemoryChange(change)
    case .update(let id, _):
      let slot = slot(ofUnclaimed: id) { !$0.isFinished }
      return stage(change, of: slot.flatMap { isDisplaced($0) ? nil : $0 })
    case .remove(let id):
      return stageWithDependents(change, of: slot(ofUnclaimed: id) { $0.isFinished })
    case .broad(let change):
      if case .prune = change { ended.stagedPrunes += 1 }
      return StagedChange(.broadChange(change))
    case .setValue(let name, let old, let new):
      guard values.stageChange(of: name, from: old, to: new) else { return .valueDiffers }
      return StagedChange(.value(named: name, grows: new?.count ?? -1 > old?.count ?? -1))
    }
  }

  mutating func stage(_ change: TaskChange, of slot: Int?) -> StagedChange {
    guard let slot else { return .stale }
    reserve(slot)
    return StagedChange(.change(change, slot: slot))
  }

  /// Stages a change to a task that may also change the tasks that wait for it.
  mutating func stageWithDependents(
    _ change: TaskChange,
    of slot: Int?,
    excluding excluded: [TaskID]? = nil
  ) -> StagedChange {
    if let slot { bindDependents(of: slot, change, excluding: excluded) }
    return stage(change, of: slot)
  }

  /// Reserves a task for a staged change, so that no claim finds the task.
  mutating func reserve(_ slot: Int) {
    entries[slot].isReserved = true
    if entries[slot].record.state.isClaimable { removeFromList(slot) }
  }

  // Look-ups are inlined: for a call, the compiler would copy the whole table.
  @inline(__always)
  func slot(of target: TaskTarget, in states: (TaskState) -> Bool) -> Int? {
    switch target {
    case .claimed(let lease): states(.running) ? slot(ofClaimed: lease) : nil
    case .unclaimed(let id): slot(ofUnclaimed: id, in: states)
    }
  }

  @inline(__always)
  func slot(ofClaimed lease: Lease) -> Int? {
    guard let slot = slot(of: lease.id), !entries[slot].isReserved,
      entries[slot].place == .leased(token: lease.token)
    else { return nil }
    return slot
  }

  @inline(__always)
  private func slot(ofUnclaimed id: TaskID, in states: (TaskState) -> Bool) -> Int? {
    guard let slot = slot(of: id), !hasPendingChange(slot), entries[slot].place.isAtRest,
      states(entries[slot].record.state)
    else { return nil }
    return slot
  }

  /// Returns whether a staged change may still change or remove a task.
  ///
  /// A decision that depends on such a task could turn out differently when the file is read again.
  @inline(__always)
  func hasPendingChange(_ slot: Int) -> Bool {
    let place = entries[slot].place
    return entries[slot].isReserved || entries[slot].isPinned || place == .staged
      || (place == .finished && ended.stagedPrunes > 0)
  }

  /// Records the size in a file of the task or the value that the last staged change adds.
  mutating func setByteCount(_ count: Int, of staged: StagedChange) {
    switch staged.effect {
    case .insertion(let slot, _, _): addBytes(count, to: slot)
    case .value(let name, _): values.setByteCount(count, ofLastStaged: name)
    case .replacement, .supersession, .change, .memory, .broadChange, nil: break
    }
  }

  /// Undoes a staged change that was not committed.
  ///
  /// Changes must be rolled back in the reverse of the order in which they were staged.
  mutating func rollBack(_ staged: StagedChange) {
    switch staged.effect {
    case .insertion(let slot, _, let displaced):
      unbindDependents(of: slot)
      remove(slot)
      for other in displaced { undoDisplacement(of: other) }
    case .replacement(_, let slot): endReservation(of: slot)
    case .supersession(_, let slot, let successor):
      endReservation(of: successor)
      endReservation(of: slot)
    case .change(.move(_, let move), let slot) where move.takesKey:
      giveUpReclaimedKey(of: slot)
      endReservation(of: slot)
    case .change(_, let slot): endReservation(of: slot)
    case .broadChange(.prune): ended.stagedPrunes -= 1
    case .value(let name, _): values.rollBackLastChange(of: name)
    case .memory(let change): unstage(change)
    case .broadChange, nil: break
    }
  }

  /// Ends the reservation of a task, so that claims find the task again.
  mutating func endReservation(of slot: Int) {
    unbindDependents(of: slot)
    entries[slot].isReserved = false
    entries[slot].isFailing = false
    // A task whose insertion is staged, too, is not in any list yet.
    guard entries[slot].place != .staged else { return }
    if entries[slot].record.state.isClaimable { putInList(slot) }
  }
}

extension TaskTable.Place {
  /// Whether the task is neither being inserted nor running.
  fileprivate var isAtRest: Bool {
    switch self {
    case .waiting, .ready, .held, .suspended, .parked, .paused, .finished: true
    case .staged, .leased: false
    }
  }
}

/// A change that the table has checked, and that reserves tasks until it is committed or rolled
/// back.
struct StagedChange: Sendable {
  let outcome: ChangeOutcome
  /// What the commit does; `nil` if the change has no effect, and must not be written.
  private(set) var effect: Effect?
  /// Whether this change causes its batch to be refused, so that no change of the batch is written.
  private(set) var causesBatchRefusal = false
  /// Whether the outcome depends on other staged changes, and may differ once those are committed.
  private(set) var isUncertain = false

  /// What the commit of a change does.
  enum Effect: Sendable {
    /// Makes a new task available to claims; staging has already added its entry to the table.
    ///
    /// If `isSuccessor` is `true`, the new task waits for the task that holds its unique key; if
    /// that task has ended, the new task takes its role. The `displaced` tasks have expired, and
    /// lose their unique key to the new task.
    case insertion(slot: Int, isSuccessor: Bool = false, displaced: [Int] = [])
    /// Gives the task in a slot the contents of a new task with the same unique key.
    indirect case replacement(TaskRecord, slot: Int)
    /// Removes a task whose attempt has failed, so that the task that waits for its unique key
    /// replaces it.
    indirect case supersession(TaskMove, slot: Int, successor: Int)
    /// Changes the task in a slot, and possibly tasks that wait for it.
    case change(TaskChange, slot: Int)
    /// Changes the memory of a task, which staging has not reserved.
    case memory(MemoryChange)
    /// Changes any number of tasks, which staging has not reserved.
    indirect case broadChange(BroadChange)
    /// Sets or removes the value under this name; `grows` says whether the new value is larger than
    /// the previous one.
    case value(named: String, grows: Bool)
  }

  init(_ effect: Effect, outcome: ChangeOutcome = .done) {
    self.effect = effect
    self.outcome = outcome
  }

  private init(
    withoutEffect outcome: ChangeOutcome,
    causesBatchRefusal: Bool,
    isUncertain: Bool = false
  ) {
    self.outcome = outcome
    self.causesBatchRefusal = causesBatchRefusal
    self.isUncertain = isUncertain
  }

  /// A change that no longer applies.
  static let stale = StagedChange(withoutEffect: .stale, causesBatchRefusal: false)

  /// A change to a stored value, if the change expects another value than the current one.
  static let valueDiffers = StagedChange(withoutEffect: .valueDiffers, causesBatchRefusal: true)

  /// An insertion of a task whose ID belongs to another task.
  static let identityTaken = StagedChange(withoutEffect: .identityTaken, causesBatchRefusal: true)

  /// A repeated insertion, whose task is already in the table.
  static let sentBefore = StagedChange(withoutEffect: .done, causesBatchRefusal: false)

  /// An insertion of a task that would wait for another task forever.
  ///
  /// `isCertain` is `false` if that depends on a staged change.
  static func unmetDependency(_ dependency: TaskID, isCertain: Bool) -> StagedChange {
    StagedChange(
      withoutEffect: .unmetDependency(dependency),
      causesBatchRefusal: true,
      isUncertain: !isCertain
    )
  }

  /// An insertion or a restart that another task with the same unique key prevents.
  ///
  /// If the policy is `reject`, no change of the batch is written.
  static func duplicate(of twin: TaskID, _ policy: UniquePolicy) -> StagedChange {
    StagedChange(withoutEffect: .duplicate(of: twin), causesBatchRefusal: policy == .reject)
  }

  /// Whether to write the change, and then commit it.
  var isKept: Bool { effect != nil }

  /// Returns this change without its effect, because its batch is refused.
  func refused() -> StagedChange {
    let isStored = isKept || outcome == .done
    return StagedChange(
      withoutEffect: isStored ? .batchRefused : outcome,
      causesBatchRefusal: causesBatchRefusal,
      isUncertain: isUncertain
    )
  }
}
