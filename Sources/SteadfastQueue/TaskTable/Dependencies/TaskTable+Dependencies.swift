import SystemFoundation

/// Tasks that wait for other tasks: adding them to the dependency graph, removing them from it, and
/// ending their wait.
extension TaskTable {
  // MARK: Joining

  /// Adds a new task's dependencies to the graph.
  ///
  /// If the task belongs to a batch, the batch counts the task only after its insertion is
  /// committed. Until then, the task that waits for the batch is bound, so that no claim returns
  /// it.
  mutating func joinGraph(_ slot: Int) {
    let batch = graph.takeProgress(ofBatch: entries[slot].record.id)
    defer { blockDependents(of: slot) }
    guard batch != nil || entries[slot].record.presentDependencies != nil else { return }
    if batch != nil || entries[slot].record.dependencies.hasHistory {
      entries[slot].record.dependencies = entries[slot].record.dependencies.asChosen
      entries[slot].record.dependencies.batch = batch
    }
    waitForNamedTasks(of: slot)
    entries[slot].isAwaited = entries[slot].record.dependencies.follower != nil
    updateWaiting(slot)
  }

  /// Counts a new task in its batch after its insertion is committed.
  mutating func joinBatch(_ slot: Int) {
    guard entries[slot].isAwaited,
      let follower = entries[slot].record.presentDependencies?.follower
    else { return }
    let state = entries[slot].record.state
    changeProgress(ofBatch: follower) { batch in
      batch.total += 1
      batch.changeCount(of: state, by: 1)
    }
  }

  /// Adds the dependencies of a task that is restored from a file, whose record says how they have
  /// ended so far.
  mutating func rejoinGraph(_ slot: Int) {
    if let dependencies = entries[slot].record.presentDependencies {
      if dependencies.cause != nil, entries[slot].record.state != .cancelled {
        entries[slot].record.dependencies.cause = nil
      }
      waitForNamedTasks(of: slot, notesFailures: false)
      entries[slot].isAwaited = entries[slot].record.dependencies.follower != nil
      updateWaiting(slot)
    }
    blockDependents(of: slot)
  }

  /// Makes the tasks that depend on a new task wait for it.
  ///
  /// These tasks are in the table before the new task if their lines come first in a compacted
  /// file, or if the program makes its own IDs.
  private mutating func blockDependents(of slot: Int) {
    guard !graph.isEmpty else { return }
    let id = entries[slot].record.id
    let isOpen = !entries[slot].record.state.isFinished
    for dependent in graph.edges.slots(naming: id) {
      entries[slot].isAwaited = true
      guard isOpen else { continue }
      graph.edges.changeUnfinishedCount(of: dependent, by: 1)
      updateWaitingAndMove(dependent)
    }
  }

  private mutating func waitForNamedTasks(of slot: Int, notesFailures: Bool = true) {
    let dependencies = entries[slot].record.dependencies
    var failed = dependencies.failed
    for name in dependencies.tasks {
      graph.edges.addEdge(from: slot, to: name)
      guard let named = self.slot(of: name) else { continue }
      entries[named].isAwaited = true
      let state = entries[named].record.state
      if !state.isFinished {
        graph.edges.changeUnfinishedCount(of: slot, by: 1)
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

  /// Returns the ID of a task that a new task would wait for forever; `nil` if there is none.
  ///
  /// If there are several such tasks, the result is the lowest ID.
  func unmetDependency(of record: TaskRecord) -> TaskID? {
    guard record.hasPrerequisites, !record.state.isFinished,
      let dependencies = record.presentDependencies
    else { return nil }
    // This is a loop, because the closure of a lazy collection would copy the table.
    var least: TaskID?
    for id in dependencies.tasks where isUnmetDependency(id, rule: dependencies.rule) {
      least = min(least ?? id, id)
    }
    return least
  }

  private func isUnmetDependency(_ id: TaskID, rule: DependencyRule) -> Bool {
    guard let slot = slot(of: id) else { return true }
    if entries[slot].isFailing { return true }
    switch entries[slot].record.state {
    case .succeeded: return false
    case .waiting, .running, .suspended, .parked, .paused: return mayBeCancelledByStagedChange(slot)
    // The effect of a staged change on the task is not known yet.
    case .abandoned, .cancelled: return rule == .allSucceeded || hasPendingChange(slot)
    }
  }

  /// Returns the outcome for a new task that is refused because it would wait for another task
  /// forever; `nil` if the new task is not refused.
  func refusal(of record: TaskRecord) -> StagedChange? {
    guard let id = unmetDependency(of: record) else { return nil }
    guard let slot = slot(of: id) else { return .unmetDependency(id, isCertain: true) }
    // Unless that task has failed, only a staged change prevents the new task from waiting for it.
    let hasFailed =
      entries[slot].record.state.isFinished && record.dependencies.rule == .allSucceeded
    return .unmetDependency(id, isCertain: hasFailed)
  }

  private func mayBeCancelledByStagedChange(_ slot: Int) -> Bool {
    entries[slot].isPinned && graph.isBeingCancelled(entries[slot].id)
  }

  // MARK: Leaving

  /// Removes a task from the graph because it leaves the table, so that no other task waits for it
  /// any longer.
  mutating func leaveGraph(_ slot: Int) {
    let record = entries[slot].record
    if entries[slot].isAwaited, !record.state.isFinished { releaseDependents(slot) }
    graph.edges.removeEdges(from: slot)
  }

  /// Makes the tasks that wait for an unfinished task stop waiting, because that task is removed.
  private mutating func releaseDependents(_ slot: Int) {
    let record = entries[slot].record
    if entries[slot].place != .staged, let follower = record.dependencies.follower {
      changeProgress(ofBatch: follower) { $0.removeUnfinished() }
    }
    for dependent in graph.edges.slots(naming: record.id) {
      graph.edges.changeUnfinishedCount(of: dependent, by: -1)
      updateWaitingAndMove(dependent)
    }
  }

  // MARK: Waiting

  /// Returns the slots of the tasks that wait for a task, or have waited for it: the tasks that
  /// depend on it, and the task that waits for its batch, in the order of their IDs.
  func dependents(of slot: Int) -> [Int] {
    guard entries[slot].isAwaited else { return [] }
    var slots = graph.edges.slots(naming: entries[slot].id)
    if let follower = follower(of: slot), !slots.contains(follower) { slots.append(follower) }
    return sortedByID(slots)
  }

  /// Returns slots in the order of their tasks' IDs.
  func sortedByID(_ slots: [Int]) -> [Int] {
    guard slots.count > 1 else { return slots }
    // A closure that captured the table would copy it.
    let entries = entries
    return slots.sorted { entries[$0].id < entries[$1].id }
  }

  /// Returns the slot of the follower, which waits for all tasks of this task's batch; `nil` if the
  /// follower is not in the table.
  func follower(of slot: Int) -> Int? {
    entries[slot].record.presentDependencies?.follower.flatMap { self.slot(of: $0) }
  }

  /// Returns whether another task in the table depends on this task, or this task belongs to a
  /// batch.
  @inline(__always)
  func mayAffectOthers(_ slot: Int) -> Bool {
    guard entries[slot].isAwaited else { return false }
    return entries[slot].record.presentDependencies?.follower != nil
      || graph.edges.hasDependents(of: entries[slot].id)
  }

  /// Returns whether the task in a slot depends on the task with this ID, rather than only waiting
  /// for its batch.
  func isNamed(_ id: TaskID, by slot: Int) -> Bool {
    entries[slot].record.dependencies.tasks.contains(id)
  }

  /// Changes the progress of a batch, which is stored in the record of the batch's follower or, if
  /// the follower is not in the table, in the graph.
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
    updateWaitingAndMove(slot)
    return batch
  }

  /// Updates whether a task waits for others, and moves the task to another list if that has
  /// changed.
  mutating func updateWaitingAndMove(_ slot: Int) {
    guard updateWaiting(slot) else { return }
    moveUnlessReserved(slot)
  }

  /// Updates whether a task waits for others.
  ///
  /// - Returns: Whether that has changed.
  @discardableResult
  private mutating func updateWaiting(_ slot: Int) -> Bool {
    let waits =
      graph.edges.unfinishedCount(of: slot) > 0
      || entries[slot].record.presentDependencies?.batch.map { $0.unfinished > 0 } ?? false
    defer { entries[slot].waitsForOthers = waits }
    return entries[slot].waitsForOthers != waits
  }

  /// Moves a waiting or suspended task to the list for its state, unless a staged change reserves
  /// the task.
  mutating func moveUnlessReserved(_ slot: Int) {
    guard !entries[slot].isReserved, entries[slot].place != .staged,
      entries[slot].record.state.isClaimable
    else { return }
    putInList(slot)
  }

  /// Makes a task stop waiting for other tasks.
  ///
  /// This is needed if a damaged file says that the task has started, but not that the other tasks
  /// have ended.
  mutating func stopWaiting(_ slot: Int) {
    graph.edges.resetUnfinishedCount(of: slot)
    if var batch = entries[slot].record.dependencies.batch {
      batch.succeeded += batch.unfinished
      entries[slot].record.dependencies.batch = batch
    }
    updateWaitingAndMove(slot)
  }
}

/// The effects of the end or the removal of a task on the tasks that wait for it.
///
/// These effects are decided when the change is committed, in the order of the lines of the file,
/// so that reading the file again gives the same result. Until then, the tasks that may be affected
/// are *bound*: no claim and no other change may affect them.
extension TaskTable {
  // MARK: Staging

  /// Binds the task that waits for a new task's batch, so that no claim returns it before the new
  /// task's insertion is committed.
  mutating func bindFollower(of slot: Int) {
    guard let follower = follower(of: slot), canBeBound(follower) else { return }
    let held = DependencyGraph.Binding(tasks: [entries[follower].id])
    graph.recordBinding(held, for: entries[slot].id)
    pin(follower)
  }

  /// Binds the other tasks that a staged change to a task will change, or may change.
  ///
  /// While a file is read, `excluded` contains the tasks that, according to the file, are not
  /// restarted along with this task. Otherwise it is `nil`, and the table decides which ones these
  /// are.
  mutating func bindDependents(of slot: Int, _ change: TaskChange, excluding excluded: [TaskID]?) {
    guard entries[slot].isAwaited else { return }
    var binding = DependencyGraph.Binding(excluded: excluded ?? [])
    switch change {
    case .end(_, let end) where end.state != .succeeded:
      binding.tasks = tasksThatMayBeCancelled(with: slot)
      binding.cancels = true
    case .move(_, let move) where move.takesKey && entries[slot].record.state.isFinished:
      let others = slotsThatMayRestart(with: slot)
      if excluded == nil { binding.excluded = reclaimKeys(of: others, restartedWith: slot) }
      // Tasks that depend on a restarted task must not start before it is recorded that they wait
      // again.
      let waiting = ([slot] + others).flatMap(dependents).filter(canBeBound)
      binding.tasks = Set(others + waiting).map { entries[$0].id }
    case .remove:
      binding.tasks = slotsRemoved(with: slot, includingBound: true).map { entries[$0].id }
    default: return
    }
    graph.recordBinding(binding, for: entries[slot].id)
    for id in binding.tasks { if let other = self.slot(of: id) { pin(other) } }
  }

  private mutating func pin(_ slot: Int) {
    entries[slot].isPinned = true
    // No claim may find the task. A task whose insertion is only staged is not in any list yet.
    if entries[slot].isInList, entries[slot].record.state.isClaimable { putInList(slot) }
  }

  /// Releases the tasks that a staged change to a task has bound.
  @discardableResult
  mutating func unbindDependents(of slot: Int) -> DependencyGraph.Binding {
    guard entries[slot].isAwaited else { return DependencyGraph.Binding() }
    let binding = graph.removeBinding(for: entries[slot].id)
    for id in binding.tasks {
      guard let other = self.slot(of: id), !graph.isPinned(id) else { continue }
      entries[other].isPinned = false
      // A reserved task may have taken its key for a restart of its own, and then keeps it.
      if !entries[other].isReserved { giveUpReclaimedKey(of: other) }
      moveUnlessReserved(other)
    }
    return binding
  }

  /// Returns the tasks that the commit will or may cancel because a task ends without success.
  private func tasksThatMayBeCancelled(with slot: Int) -> [TaskID] {
    dependentSlots(from: slot) { other in
      canBeBound(other) && entries[other].record.dependencies.rule == .allSucceeded
    }.map { entries[$0].id }
  }

  /// Returns whether a staged change to another task may change this task at its commit.
  ///
  /// A finished task may be unfinished by then, because of a staged change to the task itself or to
  /// a task that it waits for. A running task is not changed: its attempt continues, and the line
  /// of its end comes later.
  private func canBeBound(_ slot: Int) -> Bool {
    if entries[slot].isReserved || entries[slot].isPinned { return true }
    if case .leased = entries[slot].place { return false }
    return !entries[slot].record.state.isFinished
  }

  /// Returns the slots of the tasks that are removed along with a task.
  ///
  /// With `includingBound`, the result includes the bound tasks, because this task may become the
  /// cause of their cancellation before its removal is committed.
  private func slotsRemoved(with slot: Int, includingBound: Bool = false) -> [Int] {
    var removed: Set<TaskID> = [entries[slot].id]
    return dependentSlots(from: slot) { other in
      guard entries[other].record.state == .cancelled,
        let cause = entries[other].record.dependencies.cause,
        removed.contains(cause) || includingBound && entries[other].isPinned
      else { return false }
      removed.insert(entries[other].id)
      return true
    }
  }

  /// Returns the slots of the tasks that wait for a task, directly or indirectly.
  ///
  /// If `follows` returns `false` for a task, that task is left out, and the tasks that wait for it
  /// are not searched.
  func dependentSlots(from slot: Int, where follows: (Int) -> Bool) -> [Int] {
    var found: [Int] = []
    var seen: Set<Int> = [slot]
    var next = [slot]
    while let current = next.popLast() {
      for other in dependents(of: current) where !seen.contains(other) && follows(other) {
        seen.insert(other)
        found.append(other)
        next.append(other)
      }
    }
    return found
  }

  // MARK: Ends

  /// Records the end of a task in the tasks that wait for it.
  ///
  /// If the task ended without success, this also cancels the tasks that need its success, the
  /// tasks that need the success of those, and so on.
  mutating func applyToOthers(_ end: TaskEnd, of slot: Int) -> Consequences {
    recordEnd(of: slot, as: end.state)
    let ended = end.state == .succeeded ? [] : cancelOthers(with: slot)
    var consequences = Consequences(tasks: ended.map { entries[$0].id })
    for other in ended { endCancelled(other, at: end.date, retains: end.retains) }
    consequences.batch = progressOfBatch(of: slot)
    // The removal of the task has no further effect on the tasks that waited for it.
    if !end.retains { entries[slot].isAwaited = false }
    return consequences
  }

  /// Cancels the tasks that need the success of a task that failed, the tasks that need the success
  /// of those, and so on.
  ///
  /// - Returns: The cancelled tasks, in the order of their IDs.
  private mutating func cancelOthers(with slot: Int) -> [Int] {
    var next = [slot]
    var cancelled: Set<Int> = []
    while let current = next.popLast() {
      // Only a file that another program wrote contains tasks that wait for each other in a cycle.
      for other in dependents(of: current) where other != slot {
        if cancelled.contains(other) || isToBeCancelled(other) {
          recordCause(current, ofCancelling: other)
        }
        guard isToBeCancelled(other) else { continue }
        removeFromList(other)
        setState(.cancelled, of: other)
        recordEnd(of: other, as: .cancelled)
        cancelled.insert(other)
        next.append(other)
      }
    }
    return sortedByID(Array(cancelled))
  }

  /// Records that one task caused the cancellation of another, unless a task with a lower ID is
  /// already the cause.
  private mutating func recordCause(_ slot: Int, ofCancelling other: Int) {
    let id = entries[slot].id
    if let cause = entries[other].record.dependencies.cause {
      entries[other].record.dependencies.cause = min(cause, id)
    } else {
      entries[other].record.dependencies.cause = id
      addBytes(Self.causeByteCount, to: other)
    }
  }

  /// Returns the progress of a task's batch; `nil` if the batch's follower is not in the table.
  func progressOfBatch(of slot: Int) -> BatchProgress? {
    follower(of: slot).flatMap { entries[$0].record.dependencies.batch }
  }

  /// Records the end of a task in the tasks that wait for it, without cancelling any of them.
  private mutating func recordEnd(of slot: Int, as state: TaskState) {
    let id = entries[slot].id
    let follower = follower(of: slot)
    for other in dependents(of: slot) {
      if state != .succeeded { recordFailure(of: id, as: state, in: other) }
      guard other != follower || isNamed(id, by: other) else { continue }
      graph.edges.changeUnfinishedCount(of: other, by: -1)
      updateWaitingAndMove(other)
    }
    if let follower = entries[slot].record.presentDependencies?.follower {
      changeProgress(ofBatch: follower) { $0.changeCount(of: state, by: 1) }
    }
  }

  private mutating func recordFailure(of id: TaskID, as state: TaskState, in slot: Int) {
    let count = entries[slot].record.dependencies.failed.count
    entries[slot].record.dependencies.note(id, endedAs: state)
    let noted = entries[slot].record.dependencies.failed.count - count
    addBytes(noted * Self.failureByteCount, to: slot)
  }

  private func isToBeCancelled(_ slot: Int) -> Bool {
    guard entries[slot].record.dependencies.rule == .allSucceeded,
      !entries[slot].record.state.isFinished
    else { return false }
    let place = entries[slot].place
    if case .leased = place { return false }
    // The insertion of a staged task comes later in this batch of changes. No queue ends a task and
    // adds the task that waits for its batch in one batch of changes.
    return place != .staged
  }

  /// Ends a task that was cancelled along with another one.
  private mutating func endCancelled(_ slot: Int, at date: Date, retains: Bool) {
    guard retains else {
      entries[slot].isAwaited = false
      return remove(slot)
    }
    end(slot, as: .cancelled, at: date)
  }

  // The approximate number of bytes that a record uses in a file for the failure of a dependency,
  // and for the cause of a cancellation.
  static var failureByteCount: Int { 53 }
  static var causeByteCount: Int { 47 }

  // MARK: Removals

  /// Removes the tasks that were cancelled because of a task that is about to be removed.
  mutating func removeOthers(with slot: Int) -> Consequences {
    let others = slotsRemoved(with: slot)
    let consequences = Consequences(tasks: others.map { entries[$0].id }.sorted())
    for other in others { remove(other) }
    return consequences
  }
}

/// The effects of the restart of an ended task on the tasks that wait for it.
extension TaskTable {
  // MARK: Staging

  /// Returns the slots of the tasks that may be restarted along with a task.
  func slotsThatMayRestart(with slot: Int) -> [Int] {
    dependentSlots(from: slot) { other in
      entries[other].record.state == .cancelled && entries[other].record.dependencies.cause != nil
    }
  }

  /// Reserves the unique keys of the tasks that may be restarted along with a task whose restart is
  /// staged.
  ///
  /// The tasks that would be restarted now come first. Otherwise, a task that is not restarted
  /// could take a key that a restarted task needs.
  ///
  /// - Returns: The tasks that can't be restarted, because their keys belong to other tasks.
  mutating func reclaimKeys(of others: [Int], restartedWith slot: Int) -> [TaskID] {
    guard others.contains(where: { entries[$0].record.uniqueKey != nil }) else { return [] }
    reclaimKeysInOrder(restartedWith: slot)
    return others.filter { !reclaimKey(of: $0) }.map { entries[$0].id }
  }

  /// Reserves the unique keys of the tasks that the restart of a task would restart now.
  ///
  /// The tasks that were cancelled because of the restarted task come first, then the tasks that
  /// were cancelled because of those, and so on.
  private mutating func reclaimKeysInOrder(restartedWith slot: Int) {
    var restarted: Set<TaskID> = [entries[slot].id]
    var causes: [Int: TaskID?] = [:]
    var round = [slot]
    while !round.isEmpty {
      let ids = Set(round.map { entries[$0].id })
      let others = Set(round.flatMap(dependents)).subtracting([slot])
        .filter { entries[$0].record.state == .cancelled }
      round = []
      for other in sortedByID(Array(others)) {
        let dependencies = entries[other].record.dependencies
        guard let cause = causes[other] ?? dependencies.cause, ids.contains(cause) else { continue }
        let left = dependencies.failed.keys.filter { !restarted.contains($0) }
        if left.isEmpty, !dependencies.hasUnlistedFailures, reclaimKey(of: other) {
          round.append(other)
        } else {
          causes[other] = .some(left.filter { self.slot(of: $0) != nil }.min())
        }
      }
      restarted.formUnion(round.map { entries[$0].id })
    }
  }

  // MARK: Committing

  /// Restarts the tasks that were cancelled along with a task that is restarted.
  ///
  /// The function also records, in all tasks that wait for a restarted task, that this task is
  /// unfinished again.
  mutating func moveOthers(
    with slot: Int,
    _ move: TaskMove,
    excluding excluded: [TaskID]
  ) -> Consequences {
    reopen(slot)
    let excluded = Set(excluded)
    var restarted: [Int] = []
    var next = [slot]
    while let current = next.popLast() {
      for other in dependents(of: current)
      where other != slot && wasCancelled(other, because: current) {
        var dependencies = entries[other].record.dependencies
        let stays = !dependencies.failed.isEmpty || dependencies.hasUnlistedFailures
        if stays || excluded.contains(entries[other].id) || !reclaimKey(of: other) {
          removeFromList(other)
          dependencies.cause = dependencies.failed.keys.filter { self.slot(of: $0) != nil }.min()
          entries[other].record.dependencies = dependencies
          putInList(other)
        } else {
          reopen(other)
          restarted.append(other)
          next.append(other)
        }
      }
    }
    restarted = sortedByID(restarted)
    for other in restarted {
      removeFromList(other)
      self.move(other, move)
    }
    return Consequences(
      tasks: restarted.map { entries[$0].id },
      batch: progressOfBatch(of: slot)
    )
  }

  private func wasCancelled(_ slot: Int, because other: Int) -> Bool {
    entries[slot].record.state == .cancelled
      && entries[slot].record.dependencies.cause == entries[other].id
  }

  /// Records, in the tasks that wait for an ended task, that the ended task is unfinished again.
  private mutating func reopen(_ slot: Int) {
    let (id, state) = (entries[slot].id, entries[slot].record.state)
    let follower = follower(of: slot)
    for other in dependents(of: slot) {
      if entries[other].record.dependencies.failed[id] != nil {
        entries[other].record.dependencies.failed[id] = nil
        addBytes(-Self.failureByteCount, to: other)
      }
      guard other != follower || isNamed(id, by: other) else { continue }
      graph.edges.changeUnfinishedCount(of: other, by: 1)
      updateWaitingAndMove(other)
    }
    if let follower = entries[slot].record.presentDependencies?.follower {
      changeProgress(ofBatch: follower) { $0.changeCount(of: state, by: -1) }
    }
  }

}
