#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

extension TaskTable {
  mutating func apply(_ batch: [TaskChange]) -> [ChangeOutcome] {
    if batch.count == 1 {
      let staged = stage(batch[0])
      commit(staged)
      return [staged.outcome]
    }
    return stage(batch).map { staged in
      commit(staged)
      return staged.outcome
    }
  }

  /// Stages changes in order: all that have an effect or, if one of them refuses the batch, none.
  mutating func stage(_ batch: [TaskChange]) -> [StagedChange] {
    var staged: [StagedChange] = []
    staged.reserveCapacity(batch.count)
    for change in batch { staged.append(stage(change)) }
    guard staged.contains(where: \.refusesBatch) else { return staged }
    for change in staged.reversed() { rollBack(change) }
    return staged.map { $0.refused() }
  }

  mutating func stage(_ change: TaskChange) -> StagedChange {
    switch change {
    case .insert(let record, let policy):
      return stageInsertion(of: record, policy)
    case .succeed(let lease, _, _), .retry(let lease, _, _, _), .abandon(let lease, _, _),
      .release(let lease), .park(let lease, _), .extend(let lease, _):
      return stage(change, of: claimed(lease))
    case .cancel(let target, _, _):
      return stage(change, of: slot(of: target) { !$0.isFinished })
    case .pause(let target):
      return stage(change, of: slot(of: target) { $0 == .waiting || $0 == .parked })
    case .resume(let id):
      return stage(change, of: unclaimed(id) { $0 == .paused })
    case .restart(let target, _):
      return stage(change, of: slot(of: target) { _ in true })
    case .reschedule(let target, _):
      return stage(change, of: slot(of: target) { !$0.isFinished })
    case .update(let id, _):
      return stage(change, of: unclaimed(id) { !$0.isFinished })
    case .remove(let id):
      return stage(change, of: unclaimed(id) { $0.isFinished })
    case .prune:
      ended.stagedPrunes += 1
      return StagedChange(.broadChange(change))
    case .unpark, .rebase:
      return StagedChange(.broadChange(change))
    }
  }

  private mutating func stage(_ change: TaskChange, of slot: Int?) -> StagedChange {
    guard let slot else { return .stale }
    reserve(slot)
    return StagedChange(.change(change, slot: slot))
  }

  /// Reserves a task for a staged change: no claim finds it.
  private mutating func reserve(_ slot: Int) {
    entries[slot].isReserved = true
    if entries[slot].record.state == .waiting { leaveLine(slot) }
  }

  private func slot(of target: TaskTarget, in states: (TaskState) -> Bool) -> Int? {
    switch target {
    case .claimed(let lease): claimed(lease)
    case .unclaimed(let id): unclaimed(id, in: states)
    }
  }

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

  /// Returns whether it is not known yet what becomes of a task.
  ///
  /// That is so while a staged change holds it, or if it has ended and a staged pruning may remove
  /// it. A decision that rests on such a task could come out differently when the file is read
  /// again.
  private func isInDoubt(_ slot: Int) -> Bool {
    let place = entries[slot].place
    return entries[slot].isReserved || place == .staged
      || (place == .finished && ended.stagedPrunes > 0)
  }

  private mutating func stageInsertion(
    of record: TaskRecord,
    _ policy: UniquePolicy
  ) -> StagedChange {
    guard slot(of: record.id) == nil else { return .identityTaken }
    var outcome = ChangeOutcome.done
    var twin: StagedChange.Twin?
    if let key = record.uniqueKey, let slot = keys.holder(of: key) {
      let entry = entries[slot]
      // A caller that wants to replace a twin in doubt can try again, with the whole batch.
      guard policy == .replace, !isInDoubt(slot) else {
        return .duplicate(of: entry.record.id, policy)
      }
      let isRemoved = entry.place.isAtRest
      twin = .init(node: Node(slot: slot, position: entry.position), isRemoved: isRemoved)
      keys.take(key, from: slot)
      if isRemoved {
        reserve(slot)
        if entry.place != .finished { outcome = .replaced(entry.record.id) }
      }
    }
    let slot = insertEntry(of: record)
    keys.give(record.uniqueKey, to: slot)
    return StagedChange(.insertion(slot: slot, twin: twin), outcome: outcome)
  }

  /// Notes how many bytes a file takes for the task that an insertion adds.
  mutating func setByteCount(_ count: Int, of staged: StagedChange) {
    guard case .insertion(let slot, _) = staged.effect else { return }
    addBytes(count, to: slot)
  }

  /// Undoes what staging reserved.
  ///
  /// Changes are rolled back in the reverse order of staging.
  mutating func rollBack(_ staged: StagedChange) {
    switch staged.effect {
    case .insertion(let slot, let twin):
      remove(slot)
      guard let twin, isAt(twin.node) else { return }
      keys.giveBack(entries[twin.node.slot].record.uniqueKey, to: twin.node.slot)
      if twin.isRemoved { setFree(twin.node.slot) }
    case .change(_, let slot): setFree(slot)
    case .broadChange(.prune): ended.stagedPrunes -= 1
    case .broadChange, nil: break
    }
  }

  /// Ends a reservation: the task returns to its place in line.
  private mutating func setFree(_ slot: Int) {
    entries[slot].isReserved = false
    if entries[slot].record.state == .waiting { lineUp(slot) }
  }
}

// MARK: - Committing

extension TaskTable {
  mutating func commit(_ staged: StagedChange) {
    switch staged.effect {
    case .insertion(let slot, let twin): commitInsertion(slot, twin)
    case .change(let change, let slot): commit(change, of: slot)
    case .broadChange(let change): commit(change)
    case nil: break
    }
  }

  private mutating func commitInsertion(_ slot: Int, _ twin: StagedChange.Twin?) {
    if let twin, isAt(twin.node) {
      if twin.isRemoved {
        remove(twin.node.slot)
      } else {
        entries[twin.node.slot].hasLostKey = true
      }
    }
    admit(slot)
  }

  private mutating func commit(_ change: TaskChange, of slot: Int) {
    leaveLine(slot)
    entries[slot].isReserved = false
    switch change {
    case .succeed(_, let date, let retains):
      retains ? end(slot, as: .succeeded, at: date) : remove(slot)
    case .abandon(_, let failure, let retains):
      note(failure, on: slot)
      retains ? end(slot, as: .abandoned, at: failure.date) : remove(slot)
    case .cancel(_, let date, let retains):
      retains ? end(slot, as: .cancelled, at: date) : remove(slot)
    case .retry(_, let date, let retryCount, let failure):
      entries[slot].record.availableDate = date
      entries[slot].record.retryCount = retryCount
      entries[slot].record.interruptionCount = 0
      entries[slot].record.isPostponed = true
      if let failure { note(failure, on: slot) }
      setState(.waiting, of: slot)
      lineUpAnew(slot)
    case .release:
      setState(.waiting, of: slot)
      lineUp(slot)
    case .park(_, let failure):
      note(failure, on: slot)
      setState(.parked, of: slot)
      lineUpAnew(slot)
    case .pause:
      setState(.paused, of: slot)
      lineUpAnew(slot)
    case .resume:
      setState(.waiting, of: slot)
      lineUpAnew(slot)
    case .restart(_, let date):
      addBytes(-entries[slot].record.failureByteCount, to: slot)
      setState(.waiting, of: slot)
      entries[slot].record.restart(availableDate: date)
      lineUpAnew(slot)
    case .reschedule(_, let date):
      entries[slot].record.availableDate = date
      entries[slot].record.isPostponed = false
      if entries[slot].record.state == .running { setState(.waiting, of: slot) }
      lineUpAnew(slot)
    case .update(_, let update): self.update(slot, update)
    case .remove: remove(slot)
    // One queue uses this table, so its claims have no end.
    case .extend: break
    case .insert, .unpark, .prune, .rebase:
      preconditionFailure("a change was staged for a task that it does not concern")
    }
  }

  /// Commits a change that concerns several tasks.
  private mutating func commit(_ change: TaskChange) {
    switch change {
    case .unpark(let name): unpark(name)
    case .prune(let state, let date, let count):
      prune(state, endedBefore: date, keepingLatest: count)
    case .rebase(let date): rebase(to: date)
    case .insert, .succeed, .abandon, .cancel, .retry, .release, .park, .pause, .resume, .restart,
      .reschedule, .update, .remove, .extend:
      preconditionFailure("a change was staged without the task that it concerns")
    }
  }

  private mutating func update(_ slot: Int, _ update: TaskUpdate) {
    let priority = entries[slot].record.priority
    addBytes(update.growth(of: entries[slot].record), to: slot)
    entries[slot].record.apply(update)
    if entries[slot].record.priority != priority { lineUpAnew(slot) } else { lineUp(slot) }
  }

  private func isAt(_ node: Node) -> Bool {
    entries[node.slot].position == node.position
  }

  private mutating func unpark(_ name: String) {
    while let first = lanes.firstParked(of: name) {
      leaveLine(first.slot)
      setState(.waiting, of: first.slot)
      if entries[first.slot].isReserved {
        // If the change that holds it is rolled back, the task is lined up then.
        setPlace(.waiting, of: first.slot)
      } else {
        lineUpAnew(first.slot)
      }
    }
  }

  /// Removes the retained tasks that are too old or too many.
  ///
  /// O(k log n) for the k tasks that are removed.
  private mutating func prune(
    _ state: TaskState,
    endedBefore date: Date?,
    keepingLatest count: Int?
  ) {
    ended.stagedPrunes -= 1
    let latest = count ?? .max
    // No other change could hold an ended task while the pruning was staged, so all may be removed.
    while let first = ended.first(state) {
      let endDate = entries[first.slot].record.finishedDate ?? .distantPast
      guard stateCounts[state] > latest || date.map({ endDate < $0 }) ?? false else { return }
      remove(first.slot)
    }
  }
}

extension TaskTable.Place {
  /// Whether a task here is neither being inserted nor being performed.
  fileprivate var isAtRest: Bool {
    switch self {
    case .waiting, .ready, .parked, .paused, .finished: true
    case .staged, .leased: false
    }
  }
}
