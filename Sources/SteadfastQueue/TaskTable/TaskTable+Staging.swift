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

  /// Stages the changes of a batch in order: all changes that have an effect or, if one of them
  /// refuses the batch, none.
  ///
  /// If a change expects another value than the stored one, every change has the outcome
  /// `.valueDiffers`.
  mutating func stage(_ batch: [TaskChange]) -> [StagedChange] {
    var staged: [StagedChange] = []
    staged.reserveCapacity(batch.count)
    for change in batch { staged.append(stage(change)) }
    guard staged.contains(where: \.refusesBatch) else { return staged }
    for change in staged.reversed() { rollBack(change) }
    let comesFirst = staged.contains { $0.outcome == .valueDiffers }
    return staged.map { comesFirst ? .valueDiffers : $0.refused() }
  }

  mutating func stage(_ change: TaskChange) -> StagedChange {
    switch change {
    case .insert(let record, let policy):
      return stageInsertion(of: record, policy)
    case .retry(let lease, let date, _, _, _):
      return stageRetry(change, of: slot(ofClaimed: lease), at: date)
    case .succeed(let lease, _, _), .release(let lease), .park(let lease, _),
      .suspend(let lease, _, _, _), .extend(let lease, _):
      return stage(change, of: slot(ofClaimed: lease))
    case .remember(let lease, _, _):
      return stageMemory(change, of: slot(ofClaimed: lease))
    case .complete:
      return stageCompletion(change)
    case .abandon(let lease, _, _):
      return stageEndWithoutSuccess(change, of: slot(ofClaimed: lease))
    case .cancel(let target, _, _):
      return stageEndWithoutSuccess(change, of: slot(of: target) { !$0.isFinished })
    case .pause(let target):
      return stage(change, of: slot(of: target) { $0.isClaimable || $0 == .parked })
    case .resume(let id):
      return stage(change, of: slot(ofUnclaimed: id) { $0 == .paused })
    case .restart(let target, _, _):
      return stageRestart(change, of: slot(of: target) { _ in true })
    case .reschedule(let target, _, _):
      return stage(change, of: slot(of: target) { !$0.isFinished })
    case .update(let id, _):
      let slot = slot(ofUnclaimed: id) { !$0.isFinished }
      return stage(change, of: slot.flatMap { isDisplaced($0) ? nil : $0 })
    case .remove(let id):
      return stageForOthers(change, of: slot(ofUnclaimed: id) { $0.isFinished })
    case .prune:
      ended.stagedPrunes += 1
      return StagedChange(.broadChange(change))
    case .unpark, .rebase:
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

  /// Stages a change that may also change other tasks.
  mutating func stageForOthers(
    _ change: TaskChange,
    of slot: Int?,
    excluding excluded: [TaskID]? = nil
  ) -> StagedChange {
    if let slot { bindDependents(of: slot, change, excluding: excluded) }
    return stage(change, of: slot)
  }

  private mutating func stageEndWithoutSuccess(
    _ change: TaskChange,
    of slot: Int?
  ) -> StagedChange {
    if let slot { entries[slot].isFailing = true }
    return stageForOthers(change, of: slot)
  }

  /// Reserves a task for a staged change, so that no claim finds the task.
  mutating func reserve(_ slot: Int) {
    entries[slot].isReserved = true
    if entries[slot].record.state.isClaimable { leaveLine(slot) }
  }

  func slot(of target: TaskTarget, in states: (TaskState) -> Bool) -> Int? {
    switch target {
    case .claimed(let lease): slot(ofClaimed: lease)
    case .unclaimed(let id): slot(ofUnclaimed: id, in: states)
    }
  }

  @inline(__always)
  private func slot(ofClaimed lease: Lease) -> Int? {
    guard let slot = slot(of: lease.id), !entries[slot].isReserved,
      entries[slot].place == .leased(token: lease.token)
    else { return nil }
    return slot
  }

  private func slot(ofUnclaimed id: TaskID, in states: (TaskState) -> Bool) -> Int? {
    guard let slot = slot(of: id), !isInDoubt(slot), entries[slot].place.isAtRest,
      states(entries[slot].record.state)
    else { return nil }
    return slot
  }

  /// Returns whether it is still undecided what happens to a task.
  ///
  /// That is the case while a staged change reserves the task, or if the task has ended and a
  /// staged pruning may remove it. A decision that depends on such a task could differ when the
  /// file is read again.
  func isInDoubt(_ slot: Int) -> Bool {
    let place = entries[slot].place
    return entries[slot].isReserved || entries[slot].isPinned || place == .staged
      || (place == .finished && ended.stagedPrunes > 0)
  }

  /// Records how many bytes the task or the value that the last staged change adds uses in a file.
  mutating func setByteCount(_ count: Int, of staged: StagedChange) {
    switch staged.effect {
    case .insertion(let slot, _, _): addBytes(count, to: slot)
    case .value(let name, _): values.setByteCount(count, ofLastStaged: name)
    case .replacement, .supersession, .change, .memory, .broadChange, nil: break
    }
  }

  /// Undoes the reservations of staging.
  ///
  /// Changes must be rolled back in the reverse order of staging.
  mutating func rollBack(_ staged: StagedChange) {
    switch staged.effect {
    case .insertion(let slot, _, let displaced):
      unbindDependents(of: slot)
      remove(slot)
      for other in displaced { regainRole(other) }
    case .replacement(_, let slot): endReservation(of: slot)
    case .supersession(_, let slot, let successor):
      endReservation(of: successor)
      endReservation(of: slot)
    case .change(.restart, let slot):
      giveUpRole(of: slot)
      endReservation(of: slot)
    case .change(_, let slot): endReservation(of: slot)
    case .broadChange(.prune): ended.stagedPrunes -= 1
    case .value(let name, _): values.rollBackLastChange(of: name)
    case .memory(let change): unstageMemory(change)
    case .broadChange, nil: break
    }
  }

  /// Ends the reservation of a task, which returns to its place in line.
  mutating func endReservation(of slot: Int) {
    unbindDependents(of: slot)
    entries[slot].isReserved = false
    entries[slot].isFailing = false
    // If the task's insertion is also staged, it is not in any line yet.
    guard entries[slot].place != .staged else { return }
    if entries[slot].record.state.isClaimable { lineUp(slot) }
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

/// A change that was checked; its reservations last until the change is committed or rolled back.
struct StagedChange: Sendable {
  let outcome: ChangeOutcome
  /// The effect of the commit; `nil` if the change has no effect, and must not be written.
  private(set) var effect: Effect?
  /// Whether this change refuses its batch: no change of the batch is written.
  private(set) var refusesBatch = false
  /// Whether the outcome depends on other staged changes, and may differ once those are committed.
  private(set) var isUncertain = false

  /// The effect of committing a change.
  enum Effect: Sendable {
    /// Lines up a new task, which is already in the table.
    ///
    /// If the new task is a successor and its key no longer has a holder, it becomes the holder.
    /// The `displaced` tasks have expired, and lose their roles for the new task's unique key.
    case insertion(slot: Int, isSuccessor: Bool = false, displaced: [Int] = [])
    /// Gives the task of a slot the contents of a new task with the same unique key.
    indirect case replacement(TaskRecord, slot: Int)
    /// Removes a task whose attempt has failed, and makes its successor the holder.
    case supersession(TaskChange, slot: Int, successor: Int)
    /// Changes the task of a slot.
    case change(TaskChange, slot: Int)
    /// Changes the values that a task remembers; until the commit, the task is not reserved.
    case memory(TaskChange)
    /// Changes several tasks, or none.
    case broadChange(TaskChange)
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
    refusesBatch: Bool,
    isUncertain: Bool = false
  ) {
    self.outcome = outcome
    self.refusesBatch = refusesBatch
    self.isUncertain = isUncertain
  }

  /// A change that no longer applies.
  static let stale = StagedChange(withoutEffect: .stale, refusesBatch: false)

  /// A change of a value that does not equal the value that the change expects.
  static let valueDiffers = StagedChange(withoutEffect: .valueDiffers, refusesBatch: true)

  /// An insertion whose ID belongs to another task.
  static let identityTaken = StagedChange(withoutEffect: .identityTaken, refusesBatch: true)

  /// An insertion that was repeated, although its task is already in the table.
  static let sentBefore = StagedChange(withoutEffect: .done, refusesBatch: false)

  /// An insertion of a task that would wait for another task forever.
  ///
  /// `isCertain` is `false` if that depends on a staged change.
  static func unmet(_ dependency: TaskID, isCertain: Bool) -> StagedChange {
    StagedChange(
      withoutEffect: .unmetDependency(dependency),
      refusesBatch: true,
      isUncertain: !isCertain
    )
  }

  /// An insertion or a restart that another task with the same unique key prevents.
  ///
  /// If the policy is `reject`, no change of the batch is written.
  static func duplicate(of twin: TaskID, _ policy: UniquePolicy) -> StagedChange {
    StagedChange(withoutEffect: .duplicate(of: twin), refusesBatch: policy == .reject)
  }

  /// Whether to write the change, and then commit it.
  var isKept: Bool { effect != nil }

  /// Returns what becomes of this change if its batch is refused.
  func refused() -> StagedChange {
    let isStored = isKept || outcome == .done
    return StagedChange(
      withoutEffect: isStored ? .batchRefused : outcome,
      refusesBatch: refusesBatch,
      isUncertain: isUncertain
    )
  }
}
