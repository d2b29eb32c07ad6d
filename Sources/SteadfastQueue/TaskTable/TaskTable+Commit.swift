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
    case .supersession(let change, let slot, let successor):
      supersede(slot, by: successor, after: change)
    case .change(let change, let slot):
      guard mayAffectOthers(slot), let consequences = commitWithDependents(change, of: slot) else {
        commit(change, of: slot)
        break
      }
      return .doneWithConsequences(consequences)
    case .broadChange(let change): commit(change)
    case .memory(let change): return commitMemoryChange(change)
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
    case .succeed(_, let date, let retains):
      consequences = applyEndToOthers(of: slot, as: .succeeded, at: date, retains: retains)
    case .abandon(_, let failure, let retains):
      unbindDependents(of: slot)
      consequences = applyEndToOthers(of: slot, as: .abandoned, at: failure.date, retains: retains)
    case .cancel(_, let date, let retains):
      unbindDependents(of: slot)
      consequences = applyEndToOthers(of: slot, as: .cancelled, at: date, retains: retains)
    case .restart(_, let date, _) where entries[slot].record.state.isFinished:
      // The dependents are released after the restart, when it is known which of them were
      // restarted.
      let excluded = graph.tasksExcluded(fromRestartOf: entries[slot].id)
      consequences = restartOthers(with: slot, availableDate: date, excluding: excluded)
      unbindDependents(of: slot)
    case .remove:
      unbindDependents(of: slot)
      consequences = removeOthers(with: slot)
    case .insert, .retry, .release, .park, .unpark, .pause, .resume, .restart, .reschedule,
      .update, .extend, .prune, .rebase, .remember, .suspend, .complete, .setValue:
      return nil
    }
    commit(change, of: slot)
    return consequences
  }

  private mutating func commit(_ change: TaskChange, of slot: Int) {
    removeFromList(slot)
    entries[slot].isReserved = false
    entries[slot].isFailing = false
    switch change {
    case .succeed(_, let date, let retains):
      forgetMemory(of: slot)
      retains ? end(slot, as: .succeeded, at: date) : remove(slot)
    case .abandon(_, let failure, let retains):
      recordFailure(failure, of: slot)
      retains ? end(slot, as: .abandoned, at: failure.date) : remove(slot)
    case .cancel(_, let date, let retains):
      retains ? end(slot, as: .cancelled, at: date) : remove(slot)
    case .retry(_, let date, let retryCount, let failure, let origin):
      postpone(slot, to: date, retryCount: retryCount, failure: failure, countedFrom: origin)
      setState(.waiting, of: slot)
      putAtEndOfList(slot)
    case .release:
      setState(.waiting, of: slot)
      putInList(slot)
    case .park(_, let failure):
      recordFailure(failure, of: slot)
      setState(.parked, of: slot)
      putAtEndOfList(slot)
    case .suspend(_, let date, let names, let origin):
      suspend(slot, until: date, awaiting: names, countedFrom: origin)
    case .pause: pause(slot)
    case .resume:
      setState(.waiting, of: slot)
      putAtEndOfList(slot)
    case .restart(_, let date, let forgets):
      if forgets { forgetMemory(of: slot) }
      restart(slot, availableDate: date)
    case .reschedule(_, let date, let origin):
      setAvailableDate(date, countedFrom: origin, of: slot)
      entries[slot].record.isPostponed = false
      let waitsAgain = [.running, .suspended].contains(entries[slot].record.state)
      if waitsAgain { setState(.waiting, of: slot) }
      putAtEndOfList(slot)
    case .update(_, let update): apply(update, to: slot)
    case .remove: remove(slot)
    // Only one queue uses this table, so claims never expire, and need not be extended.
    case .extend: break
    case .insert, .unpark, .prune, .rebase, .remember, .complete, .setValue:
      preconditionFailure("a change of this kind must not be staged for a single task")
    }
  }

  /// Commits a change that concerns any number of tasks.
  private mutating func commit(_ change: TaskChange) {
    switch change {
    case .unpark(let name, let queue): unparkTasks(named: name, in: queue)
    case .prune(let state, let date, let count, let now, let queue):
      ended.stagedPrunes -= 1
      guard let queue = lanes.number(ofQueue: queue) else { return }
      prune(state, in: queue, endedBefore: date, keepingLatest: count, now: now)
    case .rebase(let date): rebase(to: date)
    case .insert, .succeed, .abandon, .cancel, .retry, .release, .park, .pause, .resume, .restart,
      .reschedule, .update, .remove, .extend, .remember, .suspend, .complete, .setValue:
      preconditionFailure("a change of this kind must be staged for a single task")
    }
  }

  private mutating func apply(_ update: TaskUpdate, to slot: Int) {
    let priority = entries[slot].record.priority
    addBytes(update.addedByteCount(to: entries[slot].record), to: slot)
    entries[slot].record.apply(update)
    if entries[slot].record.priority != priority { putAtEndOfList(slot) } else { putInList(slot) }
  }

  private mutating func postpone(
    _ slot: Int,
    to date: Date,
    retryCount: Int,
    failure: TaskFailure?,
    countedFrom origin: Date?
  ) {
    setAvailableDate(date, countedFrom: failure?.date ?? origin, of: slot)
    entries[slot].record.retryCount = retryCount
    entries[slot].record.interruptionCount = 0
    entries[slot].record.isPostponed = true
    if let failure { recordFailure(failure, of: slot) }
  }

  private mutating func setAvailableDate(_ date: Date, countedFrom origin: Date?, of slot: Int) {
    entries[slot].record.availableDate = date
    entries[slot].record.countedFrom = origin
    advanceLatestDate(for: entries[slot].record)
  }

  /// Gives a task the contents of a new task with the same unique key.
  private mutating func commitReplacement(of slot: Int, by record: TaskRecord) {
    removeFromList(slot)
    entries[slot].isReserved = false
    let old = entries[slot].record
    let update = TaskUpdate(payload: record.payload, tags: record.tags)
    addBytes(update.addedByteCount(to: old), to: slot)
    var goesBehind = false
    changeRecord(of: slot) { goesBehind = $0.takeOver(record) }
    advanceLatestDate(for: entries[slot].record)
    if entries[slot].record.conditions != old.conditions {
      let lane = entries[slot].lane
      entries[slot].lane = lanes.addTask(
        queue: old.queue,
        name: old.name,
        conditions: entries[slot].record.conditions
      )
      lanes.removeTask(from: lane)
    }
    if goesBehind { putAtEndOfList(slot) } else { putInList(slot) }
  }

  /// Removes the holder of a unique key, whose attempt has failed, and makes its successor the
  /// holder.
  mutating func supersede(_ slot: Int, by successor: Int, after change: TaskChange) {
    guard case .retry(_, let date, let retryCount, let failure, let origin) = change else {
      preconditionFailure("a task that has not failed was superseded")
    }
    postpone(slot, to: date, retryCount: retryCount, failure: failure, countedFrom: origin)
    let holder = entries[slot].record
    entries[successor].isReserved = false
    addBytes(
      holder.failureByteCount - entries[successor].record.failureByteCount,
      to: successor
    )
    entries[successor].record.takePlace(of: holder)
    remove(slot)
  }

  private mutating func unparkTasks(named name: String, in queue: String) {
    while let first = lanes.firstParked(of: name, in: queue) {
      removeFromList(first.slot)
      setState(.waiting, of: first.slot)
      putAtEndOfListWhenFree(first.slot)
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
