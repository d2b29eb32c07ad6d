import SystemFoundation

/// Tasks that wait for others: joining and leaving the graph, and the end of waiting.
extension TaskTable {
  // MARK: Joining

  /// Adds a new task's dependencies to the graph.
  ///
  /// The task's batch counts the task only after the insertion is committed. Until then, the
  /// batch's follower is bound.
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

  /// Adds a restored task's dependencies to the graph: its record contains the history of these
  /// dependencies.
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

  /// Makes the tasks that name a new task wait for it.
  ///
  /// In a compacted file, the lines of these tasks may come before the line of the new task. In
  /// other cases, a new task is already named by others only if the program makes its own IDs.
  private mutating func blockDependents(of slot: Int) {
    guard !graph.isEmpty else { return }
    let id = entries[slot].record.id
    let isOpen = !entries[slot].record.state.isFinished
    for dependent in graph.edges.slots(naming: id) {
      entries[slot].isAwaited = true
      guard isOpen else { continue }
      graph.edges.changeUnfinishedCount(of: dependent, by: 1)
      reviewWaiting(dependent)
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
  /// If there are several such tasks, the result is the least ID.
  func unmetDependency(of record: TaskRecord) -> TaskID? {
    guard record.hasPrerequisites, !record.state.isFinished,
      let dependencies = record.presentDependencies
    else { return nil }
    // A loop, because a closure that a lazy collection stores would copy the table.
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
    // If a staged change concerns the task, the effect of that change is not known yet.
    case .abandoned, .cancelled: return rule == .allSucceeded || isInDoubt(slot)
    }
  }

  /// Returns the refusal of a new task that would wait for another task forever; `nil` if the task
  /// is not refused.
  func refusal(of record: TaskRecord) -> StagedChange? {
    guard let id = unmetDependency(of: record) else { return nil }
    guard let slot = slot(of: id) else { return .unmet(id, isCertain: true) }
    // If the task has not failed, only a staged change prevents the new task from waiting for it.
    let hasFailed =
      entries[slot].record.state.isFinished && record.dependencies.rule == .allSucceeded
    return .unmet(id, isCertain: hasFailed)
  }

  private func mayBeCancelledByStagedChange(_ slot: Int) -> Bool {
    entries[slot].isPinned && graph.isBeingCancelled(entries[slot].id)
  }

  // MARK: Leaving

  /// Removes a task that leaves the table, and releases the tasks that wait for it.
  mutating func leaveGraph(_ slot: Int) {
    let record = entries[slot].record
    if entries[slot].isAwaited, !record.state.isFinished { releaseDependents(slot) }
    graph.edges.removeEdges(from: slot)
  }

  /// Releases the tasks that wait for a task that leaves the table before it has ended.
  private mutating func releaseDependents(_ slot: Int) {
    let record = entries[slot].record
    if entries[slot].place != .staged, let follower = record.dependencies.follower {
      changeProgress(ofBatch: follower) { $0.removeUnfinished() }
    }
    for dependent in graph.edges.slots(naming: record.id) {
      graph.edges.changeUnfinishedCount(of: dependent, by: -1)
      reviewWaiting(dependent)
    }
  }

  // MARK: Waiting

  /// Returns the slots of the tasks that wait for a task, or have waited for it: the tasks that
  /// name it, and the follower of its batch, in the order of their IDs.
  func dependents(of slot: Int) -> [Int] {
    guard entries[slot].isAwaited else { return [] }
    var slots = graph.edges.slots(naming: entries[slot].id)
    if let follower = follower(of: slot), !slots.contains(follower) { slots.append(follower) }
    return sortedByID(slots)
  }

  /// Returns slots in the order of their tasks' IDs.
  func sortedByID(_ slots: [Int]) -> [Int] {
    guard slots.count > 1 else { return slots }
    // A closure over the table itself would copy it.
    let entries = entries
    return slots.sorted { entries[$0].id < entries[$1].id }
  }

  /// Returns the slot of the follower of a task's batch; `nil` if it is not in the table.
  func follower(of slot: Int) -> Int? {
    entries[slot].record.presentDependencies?.follower.flatMap { self.slot(of: $0) }
  }

  /// Returns whether another task in the table names this task, or this task belongs to a batch.
  @inline(__always)
  func concernsOthers(_ slot: Int) -> Bool {
    guard entries[slot].isAwaited else { return false }
    return entries[slot].record.presentDependencies?.follower != nil
      || graph.edges.hasDependents(of: entries[slot].id)
  }

  /// Returns whether the task in a slot names the task with an ID, rather than only following that
  /// task's batch.
  func isNamed(_ id: TaskID, by slot: Int) -> Bool {
    entries[slot].record.dependencies.tasks.contains(id)
  }

  /// Changes the progress of a batch, wherever it is stored.
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
    guard updateWaiting(slot) else { return }
    moveIfAtRest(slot)
  }

  /// Decides again whether a task waits for others.
  ///
  /// - Returns: Whether the decision differs from the previous one.
  @discardableResult
  private mutating func updateWaiting(_ slot: Int) -> Bool {
    let waits =
      graph.edges.unfinishedCount(of: slot) > 0
      || entries[slot].record.presentDependencies?.batch.map { $0.unfinished > 0 } ?? false
    defer { entries[slot].waitsForOthers = waits }
    return entries[slot].waitsForOthers != waits
  }

  /// Moves a task to the line that its present state demands, if the task waits and no staged
  /// change reserves it.
  mutating func moveIfAtRest(_ slot: Int) {
    guard !entries[slot].isReserved, entries[slot].place != .staged,
      entries[slot].record.state.isClaimable
    else { return }
    lineUp(slot)
  }

  /// Makes a task independent of other tasks.
  ///
  /// A damaged file needs this if a later line says that the task's attempt has started.
  mutating func stopWaiting(_ slot: Int) {
    graph.edges.removeOpenCount(of: slot)
    if var batch = entries[slot].record.dependencies.batch {
      batch.succeeded += batch.unfinished
      entries[slot].record.dependencies.batch = batch
    }
    reviewWaiting(slot)
  }
}

/// The effects of the end or the removal of a task on the tasks that wait for it.
///
/// The effects are decided when the change is committed, in the order of the lines of the file, so
/// that reading the file again gives the same result. Until then, the tasks that may be affected
/// are bound: no claim and no other change may use them.
extension TaskTable {
  // MARK: Staging

  /// Holds back the follower of a new task's batch until its dependency on that task is recorded.
  mutating func bindFollower(of slot: Int) {
    guard let follower = follower(of: slot), canBeBound(follower) else { return }
    let held = DependencyGraph.Binding(tasks: [entries[follower].id])
    graph.recordBinding(held, for: entries[slot].id)
    pin(follower)
  }

  /// Binds the other tasks that a staged change to a task will change, or may change.
  ///
  /// `excluded` contains the tasks that a line of the file says were not restarted along with the
  /// task; it is `nil` if the table decides which ones these are.
  mutating func bindDependents(of slot: Int, _ change: TaskChange, excluding excluded: [TaskID]?) {
    guard entries[slot].isAwaited else { return }
    var binding = DependencyGraph.Binding(excluded: excluded ?? [])
    switch change {
    case .abandon, .cancel:
      binding.tasks = tasksThatMayBeCancelled(along: slot)
      binding.cancels = true
    case .restart where entries[slot].record.state.isFinished:
      let others = slotsThatMayRestart(along: slot)
      if excluded == nil { binding.excluded = takeKeysAgain(others, restartedAlong: slot) }
      // Tasks that wait for a restarted task must not start before it is recorded that they wait
      // again.
      let waiting = ([slot] + others).flatMap(dependents).filter(canBeBound)
      binding.tasks = Set(others + waiting).map { entries[$0].id }
    case .remove:
      binding.tasks = slotsRemoved(along: slot, withBound: true).map { entries[$0].id }
    case .insert, .succeed, .retry, .release, .park, .unpark, .pause, .resume, .restart,
      .reschedule, .update, .extend, .prune, .rebase, .remember, .suspend, .complete, .setValue:
      return
    }
    graph.recordBinding(binding, for: entries[slot].id)
    for id in binding.tasks { if let other = self.slot(of: id) { pin(other) } }
  }

  private mutating func pin(_ slot: Int) {
    entries[slot].isPinned = true
    // A claim must not find the task. If the task's insertion is staged, it is not in any line yet.
    if entries[slot].isInLine, entries[slot].record.state.isClaimable { lineUp(slot) }
  }

  /// Releases the tasks that a staged change to a task has bound.
  ///
  /// - Returns: The binding.
  @discardableResult
  mutating func unbindDependents(of slot: Int) -> DependencyGraph.Binding {
    guard entries[slot].isAwaited else { return DependencyGraph.Binding() }
    let binding = graph.removeBinding(for: entries[slot].id)
    for id in binding.tasks {
      guard let other = self.slot(of: id), !graph.isPinned(id) else { continue }
      entries[other].isPinned = false
      // If the task is reserved, a separate restart of it may have taken the role, and keeps it.
      if !entries[other].isReserved { giveUpRole(of: other) }
      moveIfAtRest(other)
    }
    return binding
  }

  /// Returns the tasks that are cancelled if a task ends without success, and the tasks that might
  /// have to be cancelled by the time of the commit.
  private func tasksThatMayBeCancelled(along slot: Int) -> [TaskID] {
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
  /// With `withBound`, they include the bound tasks, because the task may become the cause of their
  /// cancellation before its removal is committed.
  private func slotsRemoved(along slot: Int, withBound: Bool = false) -> [Int] {
    var removed: Set<TaskID> = [entries[slot].id]
    return dependentSlots(from: slot) { other in
      guard entries[other].record.state == .cancelled,
        let cause = entries[other].record.dependencies.cause,
        removed.contains(cause) || withBound && entries[other].isPinned
      else { return false }
      removed.insert(entries[other].id)
      return true
    }
  }

  /// Returns the slots of the tasks that wait for a task, directly or indirectly.
  ///
  /// If `follows` returns `false` for a task, this task is left out, and the tasks that wait for it
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
  /// If the task ended without success, this also cancels the tasks that need its success, then the
  /// tasks that need the success of these, and so on.
  mutating func applyEndToOthers(
    of slot: Int,
    as state: TaskState,
    at date: Date,
    retains: Bool
  ) -> Consequences {
    recordEnd(of: slot, as: state)
    let ended = state == .succeeded ? [] : cancelOthers(along: slot)
    var consequences = Consequences(tasks: ended.map { entries[$0].id })
    for other in ended { endCancelled(other, at: date, retains: retains) }
    consequences.batch = progressOfBatch(of: slot)
    // The tasks that waited for the task have now recorded its end.
    if !retains { entries[slot].isAwaited = false }
    return consequences
  }

  /// Cancels the tasks that need the success of a task that failed, then the tasks that need the
  /// success of these, and so on.
  ///
  /// - Returns: The cancelled tasks, in the order of their IDs.
  private mutating func cancelOthers(along slot: Int) -> [Int] {
    var next = [slot]
    var along: Set<Int> = []
    while let current = next.popLast() {
      // Only a file that another program wrote contains tasks that wait for each other in a cycle.
      for other in dependents(of: current) where other != slot {
        if along.contains(other) || isToBeCancelled(other) {
          recordCause(current, ofCancelling: other)
        }
        guard isToBeCancelled(other) else { continue }
        leaveLine(other)
        setState(.cancelled, of: other)
        recordEnd(of: other, as: .cancelled)
        along.insert(other)
        next.append(other)
      }
    }
    return sortedByID(Array(along))
  }

  /// Makes a task the cause of another task's cancellation, unless the present cause has a lesser
  /// ID.
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

  /// Counts the end of a task in the tasks that wait for it.
  private mutating func recordEnd(of slot: Int, as state: TaskState) {
    let id = entries[slot].id
    let follower = follower(of: slot)
    for other in dependents(of: slot) {
      if state != .succeeded { recordFailure(of: id, as: state, in: other) }
      guard other != follower || isNamed(id, by: other) else { continue }
      graph.edges.changeUnfinishedCount(of: other, by: -1)
      reviewWaiting(other)
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
    // If the task's place is `staged`, its insertion comes later in this batch of changes. No queue
    // adds the follower of a task in the same batch of changes that ends that task.
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

  // The approximate number of bytes that the failure of another task uses in a file, and that the
  // cause of a cancellation uses.
  static var failureByteCount: Int { 53 }
  static var causeByteCount: Int { 47 }

  // MARK: Removals

  /// Removes the tasks that were cancelled because of a task that is about to be removed.
  mutating func removeOthers(alongWith slot: Int) -> Consequences {
    let others = slotsRemoved(along: slot)
    let consequences = Consequences(tasks: others.map { entries[$0].id }.sorted())
    for other in others { remove(other) }
    return consequences
  }
}

/// The effects of the restart of an ended task on the tasks that wait for it.
extension TaskTable {
  // MARK: Staging

  /// Returns the slots of the tasks that may be restarted along with a task.
  func slotsThatMayRestart(along slot: Int) -> [Int] {
    dependentSlots(from: slot) { other in
      entries[other].record.state == .cancelled && entries[other].record.dependencies.cause != nil
    }
  }

  /// Reserves the unique keys of the tasks that a staged restart may restart along with its task.
  ///
  /// The tasks that the restart would restart now come first. Otherwise, a task that is not
  /// restarted could take a key that a restarted task needs.
  ///
  /// - Returns: The tasks that can't be restarted, because their keys belong to other tasks.
  mutating func takeKeysAgain(_ others: [Int], restartedAlong slot: Int) -> [TaskID] {
    guard others.contains(where: { entries[$0].record.uniqueKey != nil }) else { return [] }
    takeKeysInOrder(restartedAlong: slot)
    return others.filter { !takeKeyAgain($0) }.map { entries[$0].id }
  }

  /// Reserves the unique keys of the tasks that another task's restart would restart now.
  ///
  /// The tasks that were cancelled because of the restarted task come first, then the tasks that
  /// were cancelled because of these, and so on.
  private mutating func takeKeysInOrder(restartedAlong slot: Int) {
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
        if left.isEmpty, !dependencies.hasUnlistedFailures, takeKeyAgain(other) {
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
  /// It also records, in all tasks that wait for a restarted task, that this task is unfinished
  /// again.
  mutating func restartOthers(
    alongWith slot: Int,
    availableDate: Date,
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
        if stays || excluded.contains(entries[other].id) || !takeKeyAgain(other) {
          leaveLine(other)
          dependencies.cause = dependencies.failed.keys.filter { self.slot(of: $0) != nil }.min()
          entries[other].record.dependencies = dependencies
          lineUp(other)
        } else {
          reopen(other)
          restarted.append(other)
          next.append(other)
        }
      }
    }
    restarted = sortedByID(restarted)
    for other in restarted { restartAlong(other, availableDate: availableDate) }
    return Consequences(
      tasks: restarted.map { entries[$0].id },
      batch: progressOfBatch(of: slot)
    )
  }

  private func wasCancelled(_ slot: Int, because other: Int) -> Bool {
    entries[slot].record.state == .cancelled
      && entries[slot].record.dependencies.cause == entries[other].id
  }

  /// Records, in the tasks that wait for an ended task, that this task is unfinished again.
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
      reviewWaiting(other)
    }
    if let follower = entries[slot].record.presentDependencies?.follower {
      changeProgress(ofBatch: follower) { $0.changeCount(of: state, by: -1) }
    }
  }

  private mutating func restartAlong(_ slot: Int, availableDate: Date) {
    leaveLine(slot)
    restart(slot, availableDate: availableDate)
  }

  /// Makes a task wait as if the task were new.
  mutating func restart(_ slot: Int, availableDate: Date) {
    if takesKeyAtRestart(slot) { holdKeyAgain(slot) }
    addBytes(-entries[slot].record.failureByteCount, to: slot)
    if entries[slot].record.presentDependencies?.cause != nil {
      addBytes(-Self.causeByteCount, to: slot)
    }
    setState(.waiting, of: slot)
    entries[slot].record.restart(availableDate: availableDate)
    noteOrigin(of: entries[slot].record)
    joinOrder(slot)
    lineUpAnew(slot)
  }
}
