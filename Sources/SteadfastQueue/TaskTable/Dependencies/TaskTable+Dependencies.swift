import SystemFoundation

/// Tasks that wait for others: joining and leaving the graph, and the end of waiting.
extension TaskTable {
  // MARK: Joining

  /// Adds a new task's dependencies to the graph.
  ///
  /// Its batch counts the task only after its insertion is committed. Until then, the follower is
  /// bound.
  mutating func joinGraph(_ slot: Int) {
    let batch = graph.takeProgress(ofBatch: entries[slot].record.id)
    defer { blockDependents(slot) }
    guard batch != nil || entries[slot].record.presentDependencies != nil else { return }
    if batch != nil || entries[slot].record.dependencies.hasHistory {
      entries[slot].record.dependencies = entries[slot].record.dependencies.asChosen
      entries[slot].record.dependencies.batch = batch
    }
    waitForNamed(slot)
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
      batch.count(state, 1)
    }
  }

  /// Does the same as `joinGraph(_:)` for a task whose record contains the history of its
  /// dependencies.
  mutating func rejoinGraph(_ slot: Int) {
    if let dependencies = entries[slot].record.presentDependencies {
      if dependencies.cause != nil, entries[slot].record.state != .cancelled {
        entries[slot].record.dependencies.cause = nil
      }
      waitForNamed(slot, notesFailures: false)
      entries[slot].isAwaited = entries[slot].record.dependencies.follower != nil
      updateWaiting(slot)
    }
    blockDependents(slot)
  }

  /// Makes the tasks that name a new task wait for it.
  ///
  /// In a compacted file, they may come before it. Otherwise, only a program that makes its own IDs
  /// adds a task that others already name.
  private mutating func blockDependents(_ slot: Int) {
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

  /// Returns a task that a new one would wait for forever; `nil` if there is none.
  ///
  /// If there are several, it is the one with the least ID.
  func unmetDependency(of record: TaskRecord) -> TaskID? {
    guard record.hasPrerequisites, !record.state.isFinished,
      let dependencies = record.presentDependencies
    else { return nil }
    // A loop, because a closure that a lazy collection stores would copy the table.
    var least: TaskID?
    for id in dependencies.tasks where isUnmet(id, dependencies.rule) {
      least = min(least ?? id, id)
    }
    return least
  }

  private func isUnmet(_ id: TaskID, _ rule: DependencyRule) -> Bool {
    guard let slot = slot(of: id) else { return true }
    if entries[slot].isFailing { return true }
    switch entries[slot].record.state {
    case .succeeded: return false
    case .waiting, .running, .suspended, .parked, .paused: return willBeCancelledAlong(slot)
    // The effect of a staged change on it is not known yet.
    case .abandoned, .cancelled: return rule == .allSucceeded || isInDoubt(slot)
    }
  }

  /// Returns the refusal of a new task if it would wait for another one forever; `nil` if it would
  /// not.
  func refusal(of record: TaskRecord) -> StagedChange? {
    guard let id = unmetDependency(of: record) else { return nil }
    guard let slot = slot(of: id) else { return .unmet(id, isCertain: true) }
    // If the task has not failed, only a staged change prevents the new task from waiting for it.
    let hasFailed =
      entries[slot].record.state.isFinished && record.dependencies.rule == .allSucceeded
    return .unmet(id, isCertain: hasFailed)
  }

  private func willBeCancelledAlong(_ slot: Int) -> Bool {
    entries[slot].isPinned && graph.isBeingCancelled(entries[slot].id)
  }

  // MARK: Leaving

  /// Removes a task that leaves the table, and releases the tasks that wait for it.
  mutating func leaveGraph(_ slot: Int) {
    let record = entries[slot].record
    if entries[slot].isAwaited, !record.state.isFinished { releaseDependents(slot) }
    graph.edges.removeAll(from: slot)
  }

  /// Releases the tasks that wait for a task that leaves the table before it has ended.
  private mutating func releaseDependents(_ slot: Int) {
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

  /// The tasks that wait for a task, or have waited for it: those that name it, and the follower of
  /// its batch, in the order of their IDs.
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

  /// The follower of a task's batch; `nil` if there is none in the table.
  func follower(of slot: Int) -> Int? {
    entries[slot].record.presentDependencies?.follower.flatMap { self.slot(of: $0) }
  }

  /// Whether a task in the table names a task, or the task belongs to a batch.
  @inline(__always)
  func concernsOthers(_ slot: Int) -> Bool {
    guard entries[slot].isAwaited else { return false }
    return entries[slot].record.presentDependencies?.follower != nil
      || graph.edges.hasDependents(entries[slot].id)
  }

  /// Whether a task names another one, rather than only following its batch.
  func names(_ slot: Int, _ id: TaskID) -> Bool {
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
  /// - Returns: Whether that has changed.
  @discardableResult
  private mutating func updateWaiting(_ slot: Int) -> Bool {
    let waits =
      graph.edges.openCount(of: slot) > 0
      || entries[slot].record.presentDependencies?.batch.map { $0.unfinished > 0 } ?? false
    defer { entries[slot].waitsForOthers = waits }
    return entries[slot].waitsForOthers != waits
  }

  /// Moves a task to its present line, if it waits and no staged change reserves it.
  mutating func moveIfAtRest(_ slot: Int) {
    guard !entries[slot].isReserved, entries[slot].place != .staged,
      entries[slot].record.state.isClaimable
    else { return }
    lineUp(slot)
  }

  /// Makes a task independent of others, because a later line of a damaged file says that its
  /// attempt started.
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
/// The effects are decided when the change is committed, in the order of the file, so that reading
/// the file again gives the same result. Until then, the tasks are bound: no claim and no other
/// change may use them.
extension TaskTable {
  // MARK: Staging

  /// Binds the follower of a new task's batch, so that it does not start before it waits for the
  /// task.
  mutating func bindFollower(of slot: Int) {
    guard let follower = follower(of: slot), canBeBound(follower) else { return }
    let held = DependencyGraph.Binding(tasks: [entries[follower].id])
    graph.bind(held, for: entries[slot].id)
    noteBinding(follower)
  }

  /// Binds the tasks that a staged change to another one will change, or may change.
  ///
  /// `excluded` contains the tasks that were not restarted according to a line of the file; it is
  /// `nil` if the table decides.
  mutating func bindDependents(of slot: Int, _ change: TaskChange, excluding excluded: [TaskID]?) {
    guard entries[slot].isAwaited else { return }
    var binding = DependencyGraph.Binding(excluded: excluded ?? [])
    switch change {
    case .abandon, .cancel:
      binding.tasks = cancellable(from: slot)
      binding.cancels = true
    case .restart where entries[slot].record.state.isFinished:
      let others = restartable(from: slot)
      if excluded == nil { binding.excluded = takeKeysAgain(others, restartedAlong: slot) }
      // Tasks that wait for one of them must not start until it is known that they wait again.
      let waiting = ([slot] + others).flatMap(dependents).filter(canBeBound)
      binding.tasks = Set(others + waiting).map { entries[$0].id }
    case .remove:
      binding.tasks = removable(from: slot, withBound: true).map { entries[$0].id }
    case .insert, .succeed, .retry, .release, .park, .unpark, .pause, .resume, .restart,
      .reschedule, .update, .extend, .prune, .rebase, .remember, .suspend, .complete, .setValue:
      return
    }
    graph.bind(binding, for: entries[slot].id)
    for id in binding.tasks { if let other = self.slot(of: id) { noteBinding(other) } }
  }

  private mutating func noteBinding(_ slot: Int) {
    entries[slot].isPinned = true
    // A claim must not find it. If its insertion is staged, it is not in any line yet.
    if entries[slot].isInLine, entries[slot].record.state.isClaimable { lineUp(slot) }
  }

  /// Releases the tasks that a staged change to a task has bound.
  ///
  /// - Returns: The binding.
  @discardableResult
  mutating func unbindDependents(of slot: Int) -> DependencyGraph.Binding {
    guard entries[slot].isAwaited else { return DependencyGraph.Binding() }
    let binding = graph.unbind(for: entries[slot].id)
    for id in binding.tasks {
      guard let other = self.slot(of: id), !graph.isPinned(id) else { continue }
      entries[other].isPinned = false
      // A separate restart of the task may have taken the role.
      if !entries[other].isReserved { giveUpRole(of: other) }
      moveIfAtRest(other)
    }
    return binding
  }

  /// The tasks that are cancelled if a task ends without success, and those that might be by the
  /// time of the commit.
  private func cancellable(from slot: Int) -> [TaskID] {
    reachable(from: slot) { other in
      canBeBound(other) && entries[other].record.dependencies.rule == .allSucceeded
    }.map { entries[$0].id }
  }

  /// Whether a staged change to another task may change this one when it is committed.
  ///
  /// A staged change to this task, or to one that it waits for, may make it unfinished again by
  /// then. A running attempt continues, and the line of its end comes later.
  private func canBeBound(_ slot: Int) -> Bool {
    if entries[slot].isReserved || entries[slot].isPinned { return true }
    if case .leased = entries[slot].place { return false }
    return !entries[slot].record.state.isFinished
  }

  /// The tasks that are removed along with a task.
  ///
  /// Before its removal is committed, the task may become the cause of other bound tasks.
  private func removable(from slot: Int, withBound: Bool = false) -> [Int] {
    var removed: Set<TaskID> = [entries[slot].id]
    return reachable(from: slot) { other in
      guard entries[other].record.state == .cancelled,
        let cause = entries[other].record.dependencies.cause,
        removed.contains(cause) || withBound && entries[other].isPinned
      else { return false }
      removed.insert(entries[other].id)
      return true
    }
  }

  /// The tasks that wait for a task, directly or indirectly, as long as `follows` returns `true`.
  func reachable(from slot: Int, where follows: (Int) -> Bool) -> [Int] {
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
  /// If the task ended without success, this cancels the tasks that need its success, and cascades.
  mutating func endForOthers(
    _ slot: Int,
    as state: TaskState,
    at date: Date,
    retains: Bool
  ) -> Consequences {
    recordEnd(of: slot, state)
    let ended = state == .succeeded ? [] : cancelOthers(along: slot)
    var consequences = Consequences(tasks: ended.map { entries[$0].id })
    for other in ended { endCancelled(other, at: date, retains) }
    consequences.batch = progressOfBatch(before: slot)
    // They have already recorded its end.
    if !retains { entries[slot].isAwaited = false }
    return consequences
  }

  /// Cancels the tasks that need the success of a task that failed, and cascades.
  ///
  /// - Returns: The cancelled tasks, in the order of their IDs.
  private mutating func cancelOthers(along slot: Int) -> [Int] {
    var next = [slot]
    var along: Set<Int> = []
    while let current = next.popLast() {
      // Only a file that another program wrote contains tasks that wait for each other in a cycle.
      for other in dependents(of: current) where other != slot {
        if along.contains(other) || isToBeCancelled(other) { recordCause(current, of: other) }
        guard isToBeCancelled(other) else { continue }
        leaveLine(other)
        setState(.cancelled, of: other)
        recordEnd(of: other, .cancelled)
        along.insert(other)
        next.append(other)
      }
    }
    return inOrder(Array(along))
  }

  /// Makes a task the cause of another one's cancellation, unless the present cause has a lesser
  /// ID.
  private mutating func recordCause(_ slot: Int, of other: Int) {
    let id = entries[slot].id
    if let cause = entries[other].record.dependencies.cause {
      entries[other].record.dependencies.cause = min(cause, id)
    } else {
      entries[other].record.dependencies.cause = id
      addBytes(Self.causeByteCount, to: other)
    }
  }

  /// The progress of a task's batch; `nil` if the follower is not in the table.
  func progressOfBatch(before slot: Int) -> BatchProgress? {
    follower(of: slot).flatMap { entries[$0].record.dependencies.batch }
  }

  /// Counts the end of a task in the tasks that wait for it.
  private mutating func recordEnd(of slot: Int, _ state: TaskState) {
    let id = entries[slot].id
    let follower = follower(of: slot)
    for other in dependents(of: slot) {
      if state != .succeeded { recordFailure(id, state, of: other) }
      guard other != follower || names(other, id) else { continue }
      graph.edges.addOpen(-1, to: other)
      reviewWaiting(other)
    }
    if let follower = entries[slot].record.presentDependencies?.follower {
      changeProgress(ofBatch: follower) { $0.count(state, 1) }
    }
  }

  private mutating func recordFailure(_ id: TaskID, _ state: TaskState, of slot: Int) {
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
    // Its insertion comes later in this batch. No queue adds the follower of a task in the same
    // batch that ends the task.
    return place != .staged
  }

  /// Ends a task that was cancelled along with another one.
  private mutating func endCancelled(_ slot: Int, at date: Date, _ retains: Bool) {
    guard retains else {
      entries[slot].isAwaited = false
      return remove(slot)
    }
    end(slot, as: .cancelled, at: date)
  }

  // The approximate number of bytes in a file to record another task's failure, and a cause.
  static var failureByteCount: Int { 53 }
  static var causeByteCount: Int { 47 }

  // MARK: Removals

  /// Removes the tasks that were cancelled because of a task that is about to be removed.
  mutating func removeForOthers(_ slot: Int) -> Consequences {
    let others = removable(from: slot)
    let consequences = Consequences(tasks: others.map { entries[$0].id }.sorted())
    for other in others { remove(other) }
    return consequences
  }
}

/// The effects of the restart of an ended task on the tasks that wait for it.
extension TaskTable {
  // MARK: Staging

  /// The tasks that may be restarted along with a task.
  func restartable(from slot: Int) -> [Int] {
    reachable(from: slot) { other in
      entries[other].record.state == .cancelled && entries[other].record.dependencies.cause != nil
    }
  }

  /// Reserves the unique keys of the tasks that a staged restart may restart along with its task.
  ///
  /// Tasks that it would restart now come first. Otherwise, a task that is not restarted could take
  /// a key from one that is.
  ///
  /// - Returns: The tasks whose keys belong to others.
  mutating func takeKeysAgain(_ others: [Int], restartedAlong slot: Int) -> [TaskID] {
    guard others.contains(where: { entries[$0].record.uniqueKey != nil }) else { return [] }
    takeKeysInOrder(restartedAlong: slot)
    return others.filter { !takeKeyAgain($0) }.map { entries[$0].id }
  }

  /// Reserves the unique keys of the tasks that another task's restart would restart now.
  ///
  /// Tasks that it caused to be cancelled come first, then the tasks caused by those, and so on.
  private mutating func takeKeysInOrder(restartedAlong slot: Int) {
    var restarted: Set<TaskID> = [entries[slot].id]
    var causes: [Int: TaskID?] = [:]
    var round = [slot]
    while !round.isEmpty {
      let ids = Set(round.map { entries[$0].id })
      let others = Set(round.flatMap(dependents)).subtracting([slot])
        .filter { entries[$0].record.state == .cancelled }
      round = []
      for other in inOrder(Array(others)) {
        let dependencies = entries[other].record.dependencies
        guard let cause = causes[other] ?? dependencies.cause, ids.contains(cause) else { continue }
        let left = dependencies.failed.keys.filter { !restarted.contains($0) }
        if left.isEmpty, !dependencies.hasUnnotedFailures, takeKeyAgain(other) {
          round.append(other)
        } else {
          causes[other] = .some(left.filter { self.slot(of: $0) != nil }.min())
        }
      }
      restarted.formUnion(round.map { entries[$0].id })
    }
  }

  // MARK: Committing

  /// Records that an ended task waits again in the tasks that wait for it, and restarts those that
  /// were cancelled along with it.
  mutating func restartForOthers(
    _ slot: Int,
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
        let stays = !dependencies.failed.isEmpty || dependencies.hasUnnotedFailures
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
    restarted = inOrder(restarted)
    for other in restarted { restartAlong(other, availableDate: availableDate) }
    return Consequences(
      tasks: restarted.map { entries[$0].id },
      batch: progressOfBatch(before: slot)
    )
  }

  private func wasCancelled(_ slot: Int, because other: Int) -> Bool {
    entries[slot].record.state == .cancelled
      && entries[slot].record.dependencies.cause == entries[other].id
  }

  /// Counts an ended task as unfinished again in the tasks that wait for it.
  private mutating func reopen(_ slot: Int) {
    let (id, state) = (entries[slot].id, entries[slot].record.state)
    let follower = follower(of: slot)
    for other in dependents(of: slot) {
      if entries[other].record.dependencies.failed[id] != nil {
        entries[other].record.dependencies.failed[id] = nil
        addBytes(-Self.failureByteCount, to: other)
      }
      guard other != follower || names(other, id) else { continue }
      graph.edges.addOpen(1, to: other)
      reviewWaiting(other)
    }
    if let follower = entries[slot].record.presentDependencies?.follower {
      changeProgress(ofBatch: follower) { $0.count(state, -1) }
    }
  }

  private mutating func restartAlong(_ slot: Int, availableDate: Date) {
    leaveLine(slot)
    restart(slot, availableDate: availableDate)
  }

  /// Makes a task wait as if it were new.
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
