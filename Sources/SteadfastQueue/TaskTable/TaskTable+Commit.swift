import SystemFoundation

extension TaskTable {
  /// Commits a staged change.
  ///
  /// - Returns: The outcome. It may list the effects on other tasks, or say that a completion came
  ///   too late.
  @discardableResult
  mutating func commit(_ staged: StagedChange) -> ChangeOutcome {
    switch staged.effect {
    case .insertion(let slot, let isSuccessor, let displaced):
      for other in displaced { completeDisplacement(of: other) }
      if isSuccessor { promoteIfKeyHasNoHolder(slot) }
      commitInsertion(of: slot)
    case .replacement(let record, let slot): commitReplacement(of: slot, by: record)
    case .supersession(let move, let slot, let successor):
      supersede(slot, by: successor, after: move)
    case .change(let change, let slot):
      guard mayAffectOthers(slot), let consequences = commitWithDependents(change, of: slot) else {
        commit(change, of: slot)
        break
      }
      return .doneWithConsequences(consequences)
    case .broadChange(let change): commit(change)
    case .memory(let change): return commit(change)
    case .value(let name, _): values.commitFirstChange(of: name)
    case nil: break
    }
    return staged.outcome
  }

  mutating func commitInsertion(of slot: Int) {
    if entries[slot].isAwaited {
      joinBatch(slot)
      unbindDependents(of: slot)
    }
    countAndPutAtEndOfList(slot)
  }

  /// Commits a change to a task that others wait for, if changes of this kind affect other tasks.
  ///
  /// - Returns: The changes to other tasks. The result is `nil`, and the change is not committed,
  ///   if changes of this kind never affect other tasks.
  private mutating func commitWithDependents(_ change: TaskChange, of slot: Int) -> Consequences? {
    let consequences: Consequences
    switch change {
    case .end(_, let end):
      if end.state != .succeeded { unbindDependents(of: slot) }
      consequences = applyToOthers(end, of: slot)
    case .move(_, let move) where move.takesKey && entries[slot].record.state.isFinished:
      // The dependents are released after the restart, when it is known which of them were
      // restarted.
      let excluded = graph.tasksExcluded(fromRestartOf: entries[slot].id)
      consequences = moveOthers(with: slot, move, excluding: excluded)
      unbindDependents(of: slot)
    case .remove:
      unbindDependents(of: slot)
      consequences = removeOthers(with: slot)
    default: return nil
    }
    commit(change, of: slot)
    return consequences
  }

  private mutating func commit(_ change: TaskChange, of slot: Int) {
    removeFromList(slot)
    entries[slot].isReserved = false
    entries[slot].isFailing = false
    switch change {
    case .move(_, let move):
      if move.forgetsMemory { forgetMemory(of: slot) }
      self.move(slot, move)
    case .end(_, let end):
      if end.state == .succeeded { forgetMemory(of: slot) }
      if let failure = end.failure { recordFailure(failure, of: slot) }
      end.retains ? self.end(slot, as: end.state, at: end.date) : remove(slot)
    case .memory(.suspend(_, let date, let names, let origin)):
      suspend(slot, until: date, awaiting: names, countedFrom: origin)
    case .update(_, let update): apply(update, to: slot)
    case .remove: remove(slot)
    // Only one queue uses this table, so claims never expire, and need not be extended.
    case .extend: break
    case .insert, .memory, .broad, .setValue, .command:
      preconditionFailure("a change of this kind must not be staged for a single task")
    }
  }

  /// Commits a change that concerns any number of tasks.
  private mutating func commit(_ change: BroadChange) {
    switch change {
    case .unpark(let name, let queue, let version):
      unparkTasks(named: name, in: queue, below: version)
    case .prune(let state, let date, let count, let now, let queue):
      ended.stagedPrunes -= 1
      guard let queue = lanes.number(ofQueue: queue) else { return }
      prune(state, in: queue, endedBefore: date, keepingLatest: count, now: now)
    case .rebase(let date): rebase(to: date)
    }
  }

  private mutating func apply(_ update: TaskUpdate, to slot: Int) {
    let old = entries[slot].record
    addBytes(update.addedByteCount(to: old), to: slot)
    entries[slot].record.apply(update)
    updateLane(of: slot, from: old)
    if entries[slot].record.priority != old.priority {
      putAtEndOfList(slot)
    } else {
      putInList(slot)
    }
  }

  /// Moves a task that is in no list to the lane for its requirements, if they have changed.
  private mutating func updateLane(of slot: Int, from old: TaskRecord) {
    let requirements = entries[slot].record.requirements
    guard requirements != old.requirements else { return }
    let lane = entries[slot].lane
    entries[slot].lane = lanes.addTask(
      queue: old.queue,
      name: old.name,
      requirements: requirements
    )
    lanes.removeTask(from: lane)
  }

  /// Moves a task that is in no list.
  mutating func move(_ slot: Int, _ move: TaskMove) {
    if move.takesKey, takesKeyAtRestart(slot) { holdKeyAgain(slot) }
    apply(move, to: slot)
    if move.takesKey { joinOrder(slot) }
    move.keepsPosition ? putInList(slot) : putAtEndOfList(slot)
  }

  private mutating func apply(_ move: TaskMove, to slot: Int) {
    let byteCount = historyByteCount(of: slot)
    changeRecord(of: slot) { $0.move(by: move) }
    addBytes(historyByteCount(of: slot) - byteCount, to: slot)
    advanceLatestDate(for: entries[slot].record)
  }

  /// The approximate number of bytes that a file uses for what has happened to a task.
  private func historyByteCount(of slot: Int) -> Int {
    let record = entries[slot].record
    let hasCause = record.presentDependencies?.cause != nil
    return record.failureByteCount + (hasCause ? Self.causeByteCount : 0)
  }

  /// Gives a task the contents of a new task with the same unique key.
  private mutating func commitReplacement(of slot: Int, by record: TaskRecord) {
    removeFromList(slot)
    entries[slot].isReserved = false
    let old = entries[slot].record
    let update = TaskUpdate(
      payload: record.payload,
      tags: record.tags,
      metadata: record.metadata
    )
    addBytes(update.addedByteCount(to: old), to: slot)
    var goesBehind = false
    changeRecord(of: slot) { goesBehind = $0.takeOver(record) }
    advanceLatestDate(for: entries[slot].record)
    updateLane(of: slot, from: old)
    if goesBehind { putAtEndOfList(slot) } else { putInList(slot) }
  }

  /// Removes the holder of a unique key, whose attempt has failed, and makes its successor the
  /// holder.
  mutating func supersede(_ slot: Int, by successor: Int, after move: TaskMove) {
    apply(move, to: slot)
    let holder = entries[slot].record
    entries[successor].isReserved = false
    removeFromList(successor)
    addBytes(
      holder.failureByteCount - entries[successor].record.failureByteCount,
      to: successor
    )
    changeRecord(of: successor) { $0.takePlace(of: holder) }
    remove(slot)
  }

  private mutating func unparkTasks(named name: String, in queue: String, below version: Int?) {
    for node in lanes.parked(of: name, in: queue) {
      if let version, let parked = entries[node.slot].record.parkedVersion, parked >= version {
        continue
      }
      removeFromList(node.slot)
      setState(.waiting, of: node.slot)
      putAtEndOfListWhenFree(node.slot)
    }
  }

  /// Removes the ended tasks that ended before a date, or that exceed the number to keep.
  ///
  /// This takes O(k log n) for the k tasks that are removed or become removable. If the clock was
  /// set back since the last pruning, it takes O(n).
  private mutating func prune(
    _ state: TaskState,
    in queue: Int,
    endedBefore date: Date?,
    keepingLatest count: Int?,
    now: Date
  ) {
    if ended.hasReleased(state, in: queue, after: now) {
      for node in ended.prunableTasks(in: state, of: queue)
      where staysInTable(slot: node.slot, at: now) {
        removeFromList(node.slot)
        putInList(node.slot)
      }
    }
    ended.makePrunable(state, in: queue, until: now)
    // While the pruning was staged, no other change could reserve an ended task, so every ended
    // task may be removed.
    while let first = ended.firstPrunable(state, in: queue) {
      let record = entries[first.slot].record
      let isOld = date.map { record.finishedDate ?? .distantPast < $0 } ?? false
      guard ended.prunableCount(state, in: queue) > count ?? .max || isOld else { break }
      if entries[first.slot].isAwaited { _ = removeOthers(with: first.slot) }
      remove(first.slot)
    }
  }

  private func staysInTable(slot: Int, at now: Date) -> Bool {
    entries[slot].record.prunableDate.map { $0 > now } ?? false
  }
}

extension TaskTable {
  /// Moves the tasks' dates that are in the future to `now`, after the clock was set back to `now`.
  ///
  /// This takes O(1) if no task has a date after `now`. Otherwise, it takes O(n) for all tasks, and
  /// O(k log k) for the k tasks that have such a date.
  mutating func rebase(to now: Date) {
    cutoff = min(cutoff, now)
    guard latestDate > now else { return }
    let dated = entries.slots
      .filter { isChangedByRebase($0, to: now) }
      .sorted { entries[$0].position < entries[$1].position }
    for slot in dated { rebase(slot, to: now) }
  }

  private mutating func rebase(_ slot: Int, to now: Date) {
    let wasInLine = entries[slot].isInList
    let waited = entries[slot].record.state.isClaimable
    removeFromList(slot)
    var goesBehind = false
    changeRecord(of: slot) { goesBehind = $0.rebase(to: now) }
    if entries[slot].record.state.isFinished, let key = entries[slot].record.uniqueKey {
      // The task may now prevent duplicates for a shorter time than another task with its key.
      forgetTaskWithoutRole(slot, key: key)
      keys.addTaskWithoutRole(slot, key: key)
      recordRecentSuccess(of: slot, key: key)
    }
    if goesBehind, waited {
      putAtEndOfListWhenFree(slot)
    } else if wasInLine {
      putInList(slot)
    }
  }

  /// Returns whether a rebase to `now` changes a task.
  private func isChangedByRebase(_ slot: Int, to now: Date) -> Bool {
    guard entries[slot].place != .staged else { return false }
    let record = entries[slot].record
    return record.createdDate > now
      || record.hasFailureState && !record.state.isFinished
        && max(record.explicitOrigin ?? now, record.failedDate ?? now) > now
  }
}
