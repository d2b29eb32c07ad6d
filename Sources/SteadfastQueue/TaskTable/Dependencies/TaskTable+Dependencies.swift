#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

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

/// What the end or the removal of a task changes for those that wait for it.
///
/// What it changes is decided when the change is committed, in the order of the file, so that
/// reading the file again comes to the same. Until then, the tasks are bound: no claim and no other
/// change takes them.
extension TaskTable {
  // MARK: Staging

  /// Binds the follower of a new task's batch, so that it does not begin before it waits for the
  /// task.
  mutating func bindFollower(of slot: Int) {
    guard let follower = follower(of: slot), canBeBound(follower) else { return }
    let held = DependencyGraph.Binding(tasks: [entries[follower].id])
    graph.bind(held, for: entries[slot].id)
    noteBinding(follower)
  }

  /// Binds the tasks that a staged change to another one will change, or may.
  ///
  /// `excluded` are the tasks that a line of the file says were not restarted; it is `nil` if the
  /// table decides.
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
      // Those that wait for one of them must not begin before it is known that they wait again.
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
    entries[slot].isBound = true
    // A claim must not find it. One whose insertion is staged is in no line yet.
    if entries[slot].isInLine, entries[slot].record.state.isClaimable { lineUp(slot) }
  }

  /// Takes back what a staged change to a task holds of others.
  ///
  /// - Returns: What it held.
  @discardableResult
  mutating func unbindDependents(of slot: Int) -> DependencyGraph.Binding {
    guard entries[slot].isAwaited else { return DependencyGraph.Binding() }
    let binding = graph.unbind(for: entries[slot].id)
    for id in binding.tasks {
      guard let other = self.slot(of: id), !graph.isBound(id) else { continue }
      entries[other].isBound = false
      // A restart of its own may have taken the role.
      if !entries[other].isReserved { giveUpRole(of: other) }
      moveIfAtRest(other)
    }
    return binding
  }

  /// The tasks that are cancelled if a task ends without success, and those that may have become so
  /// by then.
  private func cancellable(from slot: Int) -> [TaskID] {
    reachable(from: slot) { other in
      canBeBound(other) && entries[other].record.dependencies.rule == .allSucceeded
    }.map { entries[$0].id }
  }

  /// Whether a staged change to another task may change this one when it is committed.
  ///
  /// A staged change to this one, or to one that it waits for, may bring it back by then. An
  /// attempt that is under way goes on. The line of its end comes later.
  private func canBeBound(_ slot: Int) -> Bool {
    if entries[slot].isReserved || entries[slot].isBound { return true }
    if case .leased = entries[slot].place { return false }
    return !entries[slot].record.state.isFinished
  }

  /// The tasks that are removed along with a task.
  ///
  /// Before its removal is committed, others that are bound may get it as their cause.
  private func removable(from slot: Int, withBound: Bool = false) -> [Int] {
    var removed: Set<TaskID> = [entries[slot].id]
    return reachable(from: slot) { other in
      guard entries[other].record.state == .cancelled,
        let cause = entries[other].record.dependencies.cause,
        removed.contains(cause) || withBound && entries[other].isBound
      else { return false }
      removed.insert(entries[other].id)
      return true
    }
  }

  /// The tasks that wait for a task, for one of those, and so on, as far as `follows` lets through.
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

  /// Notes for the tasks that wait for a task that it has ended.
  ///
  /// If it has ended without success, those that need its success are cancelled, and so on.
  mutating func endForOthers(
    _ slot: Int,
    as state: TaskState,
    at date: Date,
    retains: Bool
  ) -> Consequences {
    tellOthers(of: slot, state)
    let ended = state == .succeeded ? [] : cancelOthers(along: slot)
    var consequences = Consequences(tasks: ended.map { entries[$0].id })
    for other in ended { finishAlong(other, at: date, retains) }
    consequences.batch = progressOfBatch(before: slot)
    // They know of its end already.
    if !retains { entries[slot].isAwaited = false }
    return consequences
  }

  /// Cancels the tasks that need the success of one that has ended without, and so on.
  ///
  /// - Returns: Those that it has cancelled, in the order of their IDs.
  private mutating func cancelOthers(along slot: Int) -> [Int] {
    var next = [slot]
    var along: Set<Int> = []
    while let current = next.popLast() {
      // Only a file that another program wrote has tasks that wait for each other in a circle.
      for other in dependents(of: current) where other != slot {
        if along.contains(other) || isToBeCancelled(other) { noteCause(current, of: other) }
        guard isToBeCancelled(other) else { continue }
        leaveLine(other)
        setState(.cancelled, of: other)
        tellOthers(of: other, .cancelled)
        along.insert(other)
        next.append(other)
      }
    }
    return inOrder(Array(along))
  }

  /// Makes a task the cause of another one's cancellation, unless one with a lesser ID is it.
  private mutating func noteCause(_ slot: Int, of other: Int) {
    let id = entries[slot].id
    if let cause = entries[other].record.dependencies.cause {
      entries[other].record.dependencies.cause = min(cause, id)
    } else {
      entries[other].record.dependencies.cause = id
      addBytes(Self.causeByteCount, to: other)
    }
  }

  /// How far the batch is of which a task is; `nil` if its follower is not in the table.
  func progressOfBatch(before slot: Int) -> BatchProgress? {
    follower(of: slot).flatMap { entries[$0].record.dependencies.batch }
  }

  /// Counts for the tasks that wait for a task that it has ended.
  private mutating func tellOthers(of slot: Int, _ state: TaskState) {
    let id = entries[slot].id
    let follower = follower(of: slot)
    for other in dependents(of: slot) {
      if state != .succeeded { noteFailure(id, state, of: other) }
      guard other != follower || names(other, id) else { continue }
      graph.edges.addOpen(-1, to: other)
      reviewWaiting(other)
    }
    if let follower = entries[slot].record.presentDependencies?.follower {
      changeProgress(ofBatch: follower) { $0.count(state, 1) }
    }
  }

  private mutating func noteFailure(_ id: TaskID, _ state: TaskState, of slot: Int) {
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
    // Its insertion comes later in this batch. No queue adds the follower of a task that the same
    // batch ends.
    return place != .staged
  }

  /// Ends a task that was cancelled along with another one.
  private mutating func finishAlong(_ slot: Int, at date: Date, _ retains: Bool) {
    guard retains else {
      entries[slot].isAwaited = false
      return remove(slot)
    }
    end(slot, as: .cancelled, at: date)
  }

  // About how many bytes a file takes for a note that another task has failed, and for a cause.
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

/// What the restart of a task that has ended changes for those that wait for it.
extension TaskTable {
  // MARK: Staging

  /// The tasks that may be restarted along with a task.
  func restartable(from slot: Int) -> [Int] {
    reachable(from: slot) { other in
      entries[other].record.state == .cancelled && entries[other].record.dependencies.cause != nil
    }
  }

  /// Takes the unique keys of tasks that a staged restart may restart along with its task.
  ///
  /// Those that it would restart now take theirs first, so that of two with the same key, one that
  /// stays as it is does not keep it from the other.
  ///
  /// - Returns: The tasks whose keys others have.
  mutating func takeKeysAgain(_ others: [Int], restartedAlong slot: Int) -> [TaskID] {
    guard others.contains(where: { entries[$0].record.uniqueKey != nil }) else { return [] }
    takeKeysInOrder(restartedAlong: slot)
    return others.filter { !takeKeyAgain($0) }.map { entries[$0].id }
  }

  /// Takes the unique keys of the tasks that the restart of another one would restart now.
  ///
  /// Those whose cause it is go first, then those whose cause one of these is, and so on.
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

  /// Notes for the tasks that wait for a task that has ended that it waits again, and restarts
  /// those that were cancelled along with it.
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

  /// Counts for the tasks that wait for a task that it has not ended any more.
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
