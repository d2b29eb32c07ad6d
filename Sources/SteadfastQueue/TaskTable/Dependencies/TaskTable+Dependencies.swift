/// Tasks that wait for others: who joins, who leaves, and when one stops waiting.
extension TaskTable {
  // MARK: Joining

  /// Notes what a new task waits for.
  ///
  /// Until its insertion is committed, the batch of which it is does not count it. The follower is
  /// bound until then.
  mutating func joinGraph(_ slot: Int) {
    let batch = graph.takeProgress(ofBatch: entries[slot].record.id)
    defer { holdUpThoseThatName(slot) }
    guard batch != nil || entries[slot].record.presentDependencies != nil else { return }
    if batch != nil || entries[slot].record.dependencies.hasHistory {
      entries[slot].record.dependencies = entries[slot].record.dependencies.asChosen
      entries[slot].record.dependencies.batch = batch
    }
    waitForNamed(slot)
    entries[slot].isAwaited = entries[slot].record.dependencies.follower != nil
    settleWaiting(slot)
  }

  /// Counts a new task for its batch, because its insertion is committed.
  mutating func joinBatch(_ slot: Int) {
    guard entries[slot].isAwaited,
      let follower = entries[slot].record.presentDependencies?.follower
    else { return }
    let state = entries[slot].record.state
    changeProgress(ofBatch: follower) { batch in
      batch.total += 1
      batch.count(state, 1)
    }
  }

  /// Does what `joinGraph(_:)` does for a task whose record says what has happened so far.
  mutating func rejoinGraph(_ slot: Int) {
    if let dependencies = entries[slot].record.presentDependencies {
      if dependencies.cause != nil, entries[slot].record.state != .cancelled {
        entries[slot].record.dependencies.cause = nil
      }
      waitForNamed(slot, notesFailures: false)
      entries[slot].isAwaited = entries[slot].record.dependencies.follower != nil
      settleWaiting(slot)
    }
    holdUpThoseThatName(slot)
  }

  /// Makes those that name a new task wait for it.
  ///
  /// In a compacted file they may come before it. Otherwise only a program that makes its own IDs
  /// adds a task that others name.
  private mutating func holdUpThoseThatName(_ slot: Int) {
    guard !graph.isEmpty else { return }
    let id = entries[slot].record.id
    let isOpen = !entries[slot].record.state.isFinished
    for dependent in graph.edges.slots(naming: id) {
      entries[slot].isAwaited = true
      guard isOpen else { continue }
      graph.edges.addOpen(1, to: dependent)
      reviewWaiting(dependent)
    }
  }

  private mutating func waitForNamed(_ slot: Int, notesFailures: Bool = true) {
    let dependencies = entries[slot].record.dependencies
    var failed = dependencies.failed
    for name in dependencies.tasks {
      graph.edges.add(from: slot, to: name)
      guard let named = self.slot(of: name) else { continue }
      entries[named].isAwaited = true
      let state = entries[named].record.state
      if !state.isFinished {
        graph.edges.addOpen(1, to: slot)
      } else if state != .succeeded {
        failed[name] = state
      }
    }
    if notesFailures, failed != dependencies.failed {
      for (name, state) in failed.sorted(by: { $0.key < $1.key }) {
        entries[slot].record.dependencies.note(name, endedAs: state)
      }
    }
  }

  /// Returns a task that a new one would wait for without end; `nil` if there is none.
  ///
  /// Of several, it is the one with the least ID.
  func unmetDependency(of record: TaskRecord) -> TaskID? {
    guard record.hasPrerequisites, !record.state.isFinished,
      let dependencies = record.presentDependencies
    else { return nil }
    // A loop, because a closure that a lazy collection keeps would copy the table.
    var least: TaskID?
    for id in dependencies.tasks where isUnmet(id, dependencies.rule) {
      least = min(least ?? id, id)
    }
    return least
  }

  private func isUnmet(_ id: TaskID, _ rule: DependencyRule) -> Bool {
    guard let slot = slot(of: id) else { return true }
    if entries[slot].isEndingBadly { return true }
    switch entries[slot].record.state {
    case .succeeded: return false
    case .waiting, .running, .suspended, .parked, .paused: return willBeCancelledAlong(slot)
    // What a staged change does to it is not known yet.
    case .abandoned, .cancelled: return rule == .allSucceeded || isInDoubt(slot)
    }
  }

  /// Returns the refusal of a new task because of one that it would wait for without end; `nil` if
  /// there is none.
  func refusal(of record: TaskRecord) -> StagedChange? {
    guard let id = unmetDependency(of: record) else { return nil }
    guard let slot = slot(of: id) else { return .unmet(id, isCertain: true) }
    // If it has not failed, only what is staged keeps the new task from waiting for it.
    let hasFailed =
      entries[slot].record.state.isFinished && record.dependencies.rule == .allSucceeded
    return .unmet(id, isCertain: hasFailed)
  }

  private func willBeCancelledAlong(_ slot: Int) -> Bool {
    entries[slot].isBound && graph.isBeingCancelled(entries[slot].id)
  }

  // MARK: Leaving

  /// Forgets a task that leaves the table, and lets those go on that wait for it.
  mutating func leaveGraph(_ slot: Int) {
    let record = entries[slot].record
    if entries[slot].isAwaited, !record.state.isFinished { letGo(slot) }
    graph.edges.removeAll(from: slot)
  }

  /// Lets the tasks go on that wait for one that leaves the table before it has ended.
  private mutating func letGo(_ slot: Int) {
    let record = entries[slot].record
    if entries[slot].place != .staged, let follower = record.dependencies.follower {
      changeProgress(ofBatch: follower) { $0.removeUnfinished() }
    }
    for dependent in graph.edges.slots(naming: record.id) {
      graph.edges.addOpen(-1, to: dependent)
      reviewWaiting(dependent)
    }
  }

  // MARK: Waiting

  /// The tasks that wait for a task, or have waited: those that name it, and the follower of its
  /// batch, in the order of their IDs.
  func dependents(of slot: Int) -> [Int] {
    guard entries[slot].isAwaited else { return [] }
    var slots = graph.edges.slots(naming: entries[slot].id)
    if let follower = follower(of: slot), !slots.contains(follower) { slots.append(follower) }
    return inOrder(slots)
  }

  /// Returns slots in the order of their tasks' IDs.
  func inOrder(_ slots: [Int]) -> [Int] {
    guard slots.count > 1 else { return slots }
    // A closure over the table itself would copy it.
    let entries = entries
    return slots.sorted { entries[$0].id < entries[$1].id }
  }

  /// The follower of a task's batch; `nil` if it has none, or none that is in the table.
  func follower(of slot: Int) -> Int? {
    entries[slot].record.presentDependencies?.follower.flatMap { self.slot(of: $0) }
  }

  /// Whether a task in the table names a task, or the task is of a batch.
  @inline(__always)
  func concernsOthers(_ slot: Int) -> Bool {
    guard entries[slot].isAwaited else { return false }
    return entries[slot].record.presentDependencies?.follower != nil
      || graph.edges.hasDependents(entries[slot].id)
  }

  /// Whether a task names another one, and does not only follow its batch.
  func names(_ slot: Int, _ id: TaskID) -> Bool {
    entries[slot].record.dependencies.tasks.contains(id)
  }

  /// Changes the progress of a batch, wherever it is kept.
  ///
  /// - Returns: The new progress; `nil` if the batch's follower is not in the table.
  @discardableResult
  mutating func changeProgress(
    ofBatch id: TaskID,
    _ change: (inout BatchProgress) -> Void
  ) -> BatchProgress? {
    guard let slot = slot(of: id) else {
      graph.changeProgress(ofBatch: id, change)
      return nil
    }
    let before = entries[slot].record.dependencies.batch ?? BatchProgress()
    var batch = before
    change(&batch)
    guard batch != before else { return entries[slot].record.dependencies.batch }
    entries[slot].record.dependencies.batch = batch
    reviewWaiting(slot)
    return batch
  }

  /// Decides again whether a task waits for others, and moves it accordingly.
  mutating func reviewWaiting(_ slot: Int) {
    guard settleWaiting(slot) else { return }
    moveIfAtRest(slot)
  }

  /// Decides again whether a task waits for others.
  ///
  /// - Returns: Whether that has changed.
  @discardableResult
  private mutating func settleWaiting(_ slot: Int) -> Bool {
    let waits =
      graph.edges.openCount(of: slot) > 0
      || entries[slot].record.presentDependencies?.batch.map { $0.unfinished > 0 } ?? false
    defer { entries[slot].waitsForOthers = waits }
    return entries[slot].waitsForOthers != waits
  }

  /// Moves a task to the line where it belongs now, if it waits and no staged change holds it.
  mutating func moveIfAtRest(_ slot: Int) {
    guard !entries[slot].isReserved, entries[slot].place != .staged,
      entries[slot].record.state.isClaimable
    else { return }
    lineUp(slot)
  }

  /// Lets a task begin whatever it waits for, because a later line of a damaged file says that it
  /// has begun.
  mutating func stopWaiting(_ slot: Int) {
    graph.edges.removeOpenCount(of: slot)
    if var batch = entries[slot].record.dependencies.batch {
      batch.succeeded += batch.unfinished
      entries[slot].record.dependencies.batch = batch
    }
    reviewWaiting(slot)
  }
}
