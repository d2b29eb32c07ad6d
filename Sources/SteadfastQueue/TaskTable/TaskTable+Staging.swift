extension TaskTable {
  mutating func apply(_ batch: [TaskChange]) -> [ChangeOutcome] {
    if batch.count == 1 {
      if case .insert(let record, _) = batch[0], record.uniqueKey == nil {
        return insertAtOnce(record).answer
      }
      return commit(stage(batch[0])).answer
    }
    return stage(batch).map { commit($0) }
  }

  /// Stages changes in order: all that have an effect or, if one of them refuses the batch, none.
  ///
  /// If a value differs, every change has the outcome for that.
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
      return stageRetry(change, of: claimed(lease), at: date)
    case .succeed(let lease, _, _), .release(let lease), .park(let lease, _),
      .suspend(let lease, _, _, _), .extend(let lease, _):
      return stage(change, of: claimed(lease))
    case .remember(let lease, _, _):
      return stageMemory(change, of: claimed(lease))
    case .complete:
      return stageCompletion(change)
    case .abandon(let lease, _, _):
      return stageBadEnd(change, of: claimed(lease))
    case .cancel(let target, _, _):
      return stageBadEnd(change, of: slot(of: target) { !$0.isFinished })
    case .pause(let target):
      return stage(change, of: slot(of: target) { $0.isClaimable || $0 == .parked })
    case .resume(let id):
      return stage(change, of: unclaimed(id) { $0 == .paused })
    case .restart(let target, _, _):
      return stageRestart(change, of: slot(of: target) { _ in true })
    case .reschedule(let target, _, _):
      return stage(change, of: slot(of: target) { !$0.isFinished })
    case .update(let id, _):
      let slot = unclaimed(id) { !$0.isFinished }
      return stage(change, of: slot.flatMap { isDisplaced($0) ? nil : $0 })
    case .remove(let id):
      return stageForOthers(change, of: unclaimed(id) { $0.isFinished })
    case .prune:
      ended.stagedPrunes += 1
      return StagedChange(.broadChange(change))
    case .unpark, .rebase:
      return StagedChange(.broadChange(change))
    case .setValue(let name, let old, let new):
      guard values.stage(name, from: old, to: new) else { return .valueDiffers }
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

  private mutating func stageBadEnd(_ change: TaskChange, of slot: Int?) -> StagedChange {
    if let slot { entries[slot].isFailing = true }
    return stageForOthers(change, of: slot)
  }

  /// Reserves a task for a staged change: no claim finds it.
  mutating func reserve(_ slot: Int) {
    entries[slot].isReserved = true
    if entries[slot].record.state.isClaimable { leaveLine(slot) }
  }

  func slot(of target: TaskTarget, in states: (TaskState) -> Bool) -> Int? {
    switch target {
    case .claimed(let lease): claimed(lease)
    case .unclaimed(let id): unclaimed(id, in: states)
    }
  }

  @inline(__always)
  private func claimed(_ lease: Lease) -> Int? {
    guard let slot = slot(of: lease.id), !entries[slot].isReserved,
      entries[slot].place == .leased(token: lease.token)
    else { return nil }
    return slot
  }

  private func unclaimed(_ id: TaskID, in states: (TaskState) -> Bool) -> Int? {
    guard let slot = slot(of: id), !isInDoubt(slot), entries[slot].place.isAtRest,
      states(entries[slot].record.state)
    else { return nil }
    return slot
  }

  /// Returns whether a task's future is still undecided.
  ///
  /// That is the case while a staged change reserves it, or if it has ended and a staged pruning
  /// may remove it. A decision that depends on such a task could differ when the file is read
  /// again.
  func isInDoubt(_ slot: Int) -> Bool {
    let place = entries[slot].place
    return entries[slot].isReserved || entries[slot].isPinned || place == .staged
      || (place == .finished && ended.stagedPrunes > 0)
  }

  /// Records how many bytes the contents added by the last staged change use in a file.
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
    case .replacement(_, let slot): setFree(slot)
    case .supersession(_, let slot, let successor):
      setFree(successor)
      setFree(slot)
    case .change(.restart, let slot):
      giveUpRole(of: slot)
      setFree(slot)
    case .change(_, let slot): setFree(slot)
    case .broadChange(.prune): ended.stagedPrunes -= 1
    case .value(let name, _): values.rollBack(name)
    case .memory(let change): unstageMemory(change)
    case .broadChange, nil: break
    }
  }

  /// Ends a reservation: the task returns to its place in line.
  mutating func setFree(_ slot: Int) {
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

/// A change that was checked, and whose reservations last until it is committed or rolled back.
struct StagedChange: Sendable {
  let outcome: ChangeOutcome
  /// The effect of the commit; `nil` if the change has no effect, and must not be written.
  private(set) var effect: Effect?
  /// Whether, because of this change, no other change of the batch is written either.
  private(set) var refusesBatch = false
  /// Whether the outcome depends on staged changes, and may differ once they are committed.
  private(set) var isUncertain = false

  /// The effect of committing a change.
  enum Effect: Sendable {
    /// Lines up a new task, which is already in the table.
    ///
    /// A successor becomes the holder if there is no longer one. The `displaced` tasks have
    /// expired, and lose their roles for the task's unique key.
    case insertion(slot: Int, isSuccessor: Bool = false, displaced: [Int] = [])
    /// Gives the task of a slot the contents of a new task with the same unique key.
    indirect case replacement(TaskRecord, slot: Int)
    /// Removes a task whose attempt has failed, and makes its successor the holder.
    case supersession(TaskChange, slot: Int, successor: Int)
    /// Changes the task of a slot.
    case change(TaskChange, slot: Int)
    /// Changes the values that a task remembers, without reserving anything until then.
    case memory(TaskChange)
    /// Changes several tasks, or none.
    case broadChange(TaskChange)
    /// Sets the value of this name, which may be larger than the previous one.
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

  /// A change of a value that does not equal the expected one.
  static let valueDiffers = StagedChange(withoutEffect: .valueDiffers, refusesBatch: true)

  /// An insertion whose ID belongs to another task.
  static let identityTaken = StagedChange(withoutEffect: .identityTaken, refusesBatch: true)

  /// An insertion that was sent before, and whose task is in the table.
  static let sentBefore = StagedChange(withoutEffect: .done, refusesBatch: false)

  /// An insertion of a task that would wait for another one forever.
  ///
  /// It is uncertain if that depends on a staged change.
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

  /// The result of a change whose batch was refused.
  func refused() -> StagedChange {
    let isStored = isKept || outcome == .done
    return StagedChange(
      withoutEffect: isStored ? .batchRefused : outcome,
      refusesBatch: refusesBatch,
      isUncertain: isUncertain
    )
  }
}
