import SystemFoundation

extension TaskTable {
  /// Commits a staged change.
  ///
  /// - Returns: The outcome. It may contain consequences for other tasks, or report that a
  ///   completion came too late.
  @discardableResult
  mutating func commit(_ staged: StagedChange) -> ChangeOutcome {
    switch staged.effect {
    case .insertion(let slot, let isSuccessor, let displaced):
      for other in displaced { loseRole(other) }
      if isSuccessor { takeFreeRole(slot) }
      commitInsertion(of: slot)
    case .replacement(let record, let slot): commitReplacement(of: slot, by: record)
    case .supersession(let change, let slot, let successor):
      supersede(slot, by: successor, change)
    case .change(let change, let slot):
      guard concernsOthers(slot), let consequences = commitForOthers(change, of: slot) else {
        commit(change, of: slot)
        break
      }
      return .doneWithConsequences(consequences)
    case .broadChange(let change): commit(change)
    case .memory(let change): return commitMemory(change)
    case .value(let name, _): values.commit(name)
    case nil: break
    }
    return staged.outcome
  }

  mutating func commitInsertion(of slot: Int) {
    if entries[slot].isAwaited {
      joinBatch(slot)
      unbindDependents(of: slot)
    }
    admit(slot)
  }

  /// Commits a change to a task that others wait for.
  ///
  /// - Returns: The changes to other tasks; `nil` if the change never affects others, and was not
  ///   committed.
  private mutating func commitForOthers(_ change: TaskChange, of slot: Int) -> Consequences? {
    let consequences: Consequences
    switch change {
    case .succeed(_, let date, let retains):
      consequences = endForOthers(slot, as: .succeeded, at: date, retains: retains)
    case .abandon(_, let failure, let retains):
      unbindDependents(of: slot)
      consequences = endForOthers(slot, as: .abandoned, at: failure.date, retains: retains)
    case .cancel(_, let date, let retains):
      unbindDependents(of: slot)
      consequences = endForOthers(slot, as: .cancelled, at: date, retains: retains)
    case .restart(_, let date, _) where entries[slot].record.state.isFinished:
      // Tasks that are not restarted are no longer reserved once this is known.
      let excluded = graph.excluded(byRestartOf: entries[slot].id)
      consequences = restartForOthers(slot, availableDate: date, excluding: excluded)
      unbindDependents(of: slot)
    case .remove:
      unbindDependents(of: slot)
      consequences = removeForOthers(slot)
    case .insert, .retry, .release, .park, .unpark, .pause, .resume, .restart, .reschedule,
      .update, .extend, .prune, .rebase, .remember, .suspend, .complete, .setValue:
      return nil
    }
    commit(change, of: slot)
    return consequences
  }

  private mutating func commit(_ change: TaskChange, of slot: Int) {
    leaveLine(slot)
    entries[slot].isReserved = false
    entries[slot].isFailing = false
    switch change {
    case .succeed(_, let date, let retains):
      forget(slot)
      retains ? end(slot, as: .succeeded, at: date) : remove(slot)
    case .abandon(_, let failure, let retains):
      note(failure, on: slot)
      retains ? end(slot, as: .abandoned, at: failure.date) : remove(slot)
    case .cancel(_, let date, let retains):
      retains ? end(slot, as: .cancelled, at: date) : remove(slot)
    case .retry(_, let date, let retryCount, let failure, let origin):
      postpone(slot, to: date, retryCount, failure, countedFrom: origin)
      setState(.waiting, of: slot)
      lineUpAnew(slot)
    case .release:
      setState(.waiting, of: slot)
      lineUp(slot)
    case .park(_, let failure):
      note(failure, on: slot)
      setState(.parked, of: slot)
      lineUpAnew(slot)
    case .suspend(_, let date, let names, let origin):
      suspend(slot, until: date, awaiting: names, countedFrom: origin)
    case .pause: pause(slot)
    case .resume:
      setState(.waiting, of: slot)
      lineUpAnew(slot)
    case .restart(_, let date, let forgets):
      if forgets { forget(slot) }
      restart(slot, availableDate: date)
    case .reschedule(_, let date, let origin):
      setAvailableDate(date, countedFrom: origin, of: slot)
      entries[slot].record.isPostponed = false
      let waitsAgain = [.running, .suspended].contains(entries[slot].record.state)
      if waitsAgain { setState(.waiting, of: slot) }
      lineUpAnew(slot)
    case .update(_, let update): self.update(slot, update)
    case .remove: remove(slot)
    // One queue uses this table, so its claims never expire.
    case .extend: break
    case .insert, .unpark, .prune, .rebase, .remember, .complete, .setValue:
      preconditionFailure("a change was staged for a task that it does not concern")
    }
  }

  /// Commits a change that concerns several tasks.
  private mutating func commit(_ change: TaskChange) {
    switch change {
    case .unpark(let name, let queue): unpark(name, in: queue)
    case .prune(let state, let date, let count, let now, let queue):
      ended.stagedPrunes -= 1
      guard let queue = lanes.number(ofQueue: queue) else { return }
      prune(state, in: queue, endedBefore: date, keepingLatest: count, now: now)
    case .rebase(let date): rebase(to: date)
    case .insert, .succeed, .abandon, .cancel, .retry, .release, .park, .pause, .resume, .restart,
      .reschedule, .update, .remove, .extend, .remember, .suspend, .complete, .setValue:
      preconditionFailure("a change was staged without the task that it concerns")
    }
  }

  private mutating func update(_ slot: Int, _ update: TaskUpdate) {
    let priority = entries[slot].record.priority
    addBytes(update.growth(of: entries[slot].record), to: slot)
    entries[slot].record.apply(update)
    if entries[slot].record.priority != priority { lineUpAnew(slot) } else { lineUp(slot) }
  }

  private mutating func postpone(
    _ slot: Int,
    to date: Date,
    _ retryCount: Int,
    _ failure: TaskFailure?,
    countedFrom origin: Date?
  ) {
    setAvailableDate(date, countedFrom: failure?.date ?? origin, of: slot)
    entries[slot].record.retryCount = retryCount
    entries[slot].record.interruptionCount = 0
    entries[slot].record.isPostponed = true
    if let failure { note(failure, on: slot) }
  }

  private mutating func setAvailableDate(_ date: Date, countedFrom origin: Date?, of slot: Int) {
    entries[slot].record.availableDate = date
    entries[slot].record.countedFrom = origin
    noteOrigin(of: entries[slot].record)
  }

  /// Gives a task the contents of a new task with the same unique key.
  private mutating func commitReplacement(of slot: Int, by record: TaskRecord) {
    leaveLine(slot)
    entries[slot].isReserved = false
    let old = entries[slot].record
    addBytes(TaskUpdate(payload: record.payload, tags: record.tags).growth(of: old), to: slot)
    var goesBehind = false
    changeRecord(of: slot) { goesBehind = $0.takeOver(record) }
    noteOrigin(of: entries[slot].record)
    if entries[slot].record.conditions != old.conditions {
      let lane = entries[slot].lane
      entries[slot].lane = lanes.enter(old.queue, old.name, entries[slot].record.conditions)
      lanes.leave(lane)
    }
    if goesBehind { lineUpAnew(slot) } else { lineUp(slot) }
  }

  /// Removes a key's holder, whose attempt has failed, and makes its successor the holder.
  mutating func supersede(_ slot: Int, by successor: Int, _ change: TaskChange) {
    guard case .retry(_, let date, let retryCount, let failure, let origin) = change else {
      preconditionFailure("a task that has not failed was superseded")
    }
    postpone(slot, to: date, retryCount, failure, countedFrom: origin)
    let holder = entries[slot].record
    entries[successor].isReserved = false
    addBytes(
      holder.failureByteCount - entries[successor].record.failureByteCount,
      to: successor
    )
    entries[successor].record.takePlace(of: holder)
    remove(slot)
  }

  private mutating func unpark(_ name: String, in queue: String) {
    while let first = lanes.firstParked(of: name, in: queue) {
      leaveLine(first.slot)
      setState(.waiting, of: first.slot)
      lineUpAnewWhenFree(first.slot)
    }
  }

  /// Removes the retained tasks that are too old or too many.
  ///
  /// O(k log n) for the k tasks that are removed, or become removable. If the clock went back since
  /// the last pruning, O(n).
  private mutating func prune(
    _ state: TaskState,
    in queue: Int,
    endedBefore date: Date?,
    keepingLatest count: Int?,
    now: Date
  ) {
    if ended.hasReleased(state, in: queue, after: now) {
      for node in ended.prunable(state, in: queue) where stays(node.slot, after: now) {
        leaveLine(node.slot)
        lineUp(node.slot)
      }
    }
    ended.release(state, in: queue, until: now)
    // While the pruning was staged, no other change could reserve an ended task, so all may be
    // removed.
    while let first = ended.first(state, in: queue) {
      let record = entries[first.slot].record
      let isOld = date.map { record.finishedDate ?? .distantPast < $0 } ?? false
      guard ended.prunableCount(state, in: queue) > count ?? .max || isOld else { break }
      if entries[first.slot].isAwaited { _ = removeForOthers(first.slot) }
      remove(first.slot)
    }
  }

  private func stays(_ slot: Int, after now: Date) -> Bool {
    entries[slot].record.prunableDate.map { $0 > now } ?? false
  }
}

extension TaskTable {
  /// Rebases the tasks, because the clock went back to this date.
  ///
  /// O(1) if nothing was dated after this date. Otherwise O(n), and O(k log k) for the k tasks that
  /// were dated after it.
  mutating func rebase(to now: Date) {
    cutoff = min(cutoff, now)
    guard latestDate > now else { return }
    let dated = entries.slots
      .filter { isDated($0, after: now) }
      .sorted { entries[$0].position < entries[$1].position }
    for slot in dated { rebase(slot, to: now) }
  }

  private mutating func rebase(_ slot: Int, to now: Date) {
    let wasInLine = entries[slot].isInLine
    let waited = entries[slot].record.state.isClaimable
    leaveLine(slot)
    var goesBehind = false
    changeRecord(of: slot) { goesBehind = $0.rebase(to: now) }
    if entries[slot].record.state.isFinished, let key = entries[slot].record.uniqueKey {
      // It may now prevent duplicates for a shorter time than another task.
      forgetWithoutRole(slot, key)
      keys.addWithoutRole(slot, key)
      noteRecent(slot, key)
    }
    if goesBehind, waited {
      // A task that a change reserves is lined up when that change is committed or rolled back.
      lineUpAnewWhenFree(slot)
    } else if wasInLine {
      lineUp(slot)
    }
  }

  /// Returns whether rebasing changes a task.
  private func isDated(_ slot: Int, after now: Date) -> Bool {
    guard entries[slot].place != .staged else { return false }
    let record = entries[slot].record
    return record.createdDate > now
      || record.hasFailureState && !record.state.isFinished
        && max(record.explicitOrigin ?? now, record.failedDate ?? now) > now
  }
}
