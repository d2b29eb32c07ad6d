#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// What the end, the restart or the removal of a task changes for those that wait for it.
///
/// What it changes is decided when the change is committed, in the order of the file, so that
/// reading the file again comes to the same. Until then, the tasks are bound: no claim and no other
/// change takes them.
extension TaskTable {
  // MARK: Staging

  /// Binds the follower of a new task's batch, so that it does not begin before it waits for the
  /// task.
  mutating func bindFollower(of slot: Int) {
    guard let id = entries[slot].record.presentDependencies?.follower,
      let follower = self.slot(of: id), canBeBound(follower)
    else { return }
    graph.bind(DependencyGraph.Binding(tasks: [id]), for: entries[slot].id)
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
    case .abandon, .cancel: binding.tasks = cancellable(from: slot)
    case .restart where entries[slot].record.state.isFinished:
      let others = restartable(from: slot)
      if excluded == nil {
        binding.excluded = others.filter { !takeKeyAgain($0) }.map { entries[$0].record.id }
      }
      // Those that wait for one of them must not begin before it is known that they wait again.
      let waiting = ([slot] + others).flatMap(dependents).filter(canBeBound)
      binding.tasks = Set(others + waiting).map { entries[$0].id }
    case .remove: binding.tasks = removable(from: slot).map { entries[$0].id }
    case .insert, .succeed, .retry, .release, .park, .unpark, .pause, .resume, .restart,
      .reschedule, .update, .extend, .prune, .rebase:
      return
    }
    graph.bind(binding, for: entries[slot].id)
    for id in binding.tasks { if let other = self.slot(of: id) { noteBinding(other) } }
  }

  private mutating func noteBinding(_ slot: Int) {
    entries[slot].isBound = true
    // A claim must not find it. One whose insertion is staged is in no line yet.
    if entries[slot].isInLine, entries[slot].record.state == .waiting { lineUp(slot) }
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
  /// An attempt that is under way goes on. The line of its end comes later.
  private func canBeBound(_ slot: Int) -> Bool {
    if entries[slot].isReserved { return true }
    if case .leased = entries[slot].place { return false }
    return !entries[slot].record.state.isFinished
  }

  /// The tasks that may be restarted along with a task.
  private func restartable(from slot: Int) -> [Int] {
    reachable(from: slot) { other in
      entries[other].record.state == .cancelled && entries[other].record.dependencies.cause != nil
    }
  }

  /// The tasks that are removed along with a task.
  private func removable(from slot: Int) -> [Int] {
    var removed: Set<TaskID> = [entries[slot].id]
    return reachable(from: slot) { other in
      guard entries[other].record.state == .cancelled,
        let cause = entries[other].record.dependencies.cause, removed.contains(cause)
      else { return false }
      removed.insert(entries[other].id)
      return true
    }
  }

  /// The tasks that wait for a task, for one of those, and so on, as far as `follows` lets through.
  private func reachable(from slot: Int, where follows: (Int) -> Bool) -> [Int] {
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
    var consequences = Consequences()
    consequences.batch = tellOthers(of: slot, state, retains)
    var next = [slot]
    var ended: [Int] = []
    while state != .succeeded, let current = next.popLast() {
      // Only a file that another program wrote has tasks that wait for each other in a circle.
      for other in dependents(of: current) where other != slot && isToBeCancelled(other) {
        leaveLine(other)
        entries[other].record.dependencies.cause = entries[current].id
        addBytes(Self.causeByteCount, to: other)
        setState(.cancelled, of: other)
        tellOthers(of: other, .cancelled, retains)
        next.append(other)
        ended.append(other)
      }
    }
    ended.sort { entries[$0].id < entries[$1].id }
    consequences.tasks = ended.map { entries[$0].id }
    for other in ended { finishAlong(other, at: date, retains) }
    if !retains { forgetDependents(of: slot) }
    return consequences
  }

  /// Counts for the tasks that wait for a task that it has ended.
  ///
  /// - Returns: The progress of its batch.
  @discardableResult
  private mutating func tellOthers(
    of slot: Int,
    _ state: TaskState,
    _ retains: Bool
  ) -> BatchProgress? {
    let id = entries[slot].id
    var progress: BatchProgress?
    for other in dependents(of: slot) {
      if state != .succeeded { noteFailure(id, state, of: other) }
      guard names(other, id) else { continue }
      graph.addOpen(-1, to: entries[other].id)
      reviewWaiting(other)
    }
    if let follower = entries[slot].record.presentDependencies?.follower {
      progress = changeProgress(ofBatch: follower) { $0.count(state, 1) }
    }
    return progress
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
    if case .leased = entries[slot].place { return false }
    return true
  }

  /// Ends a task that was cancelled along with another one.
  private mutating func finishAlong(_ slot: Int, at date: Date, _ retains: Bool) {
    guard retains else {
      forgetDependents(of: slot)
      return remove(slot)
    }
    end(slot, as: .cancelled, at: date)
  }

  /// Forgets who waits for a task that is about to leave the table.
  private mutating func forgetDependents(of slot: Int) {
    graph.removeDependents(of: entries[slot].id)
    entries[slot].isAwaited = false
  }

  // About how many bytes a file takes for a note that another task has failed, and for a cause.
  private static var failureByteCount: Int { 53 }
  private static var causeByteCount: Int { 47 }

  // MARK: Restarts

  /// Notes for the tasks that wait for a task that has ended that it waits again, and restarts
  /// those that were cancelled along with it.
  mutating func restartForOthers(
    _ slot: Int,
    availableDate: Date,
    excluding excluded: [TaskID]
  ) -> Consequences {
    var consequences = Consequences()
    consequences.batch = reopen(slot)
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
    restarted.sort { entries[$0].id < entries[$1].id }
    consequences.tasks = restarted.map { entries[$0].id }
    for other in restarted { restartAlong(other, availableDate: availableDate) }
    return consequences
  }

  private func wasCancelled(_ slot: Int, because other: Int) -> Bool {
    entries[slot].record.state == .cancelled
      && entries[slot].record.dependencies.cause == entries[other].id
  }

  /// Counts for the tasks that wait for a task that it has not ended any more.
  ///
  /// - Returns: The progress of its batch.
  @discardableResult
  private mutating func reopen(_ slot: Int) -> BatchProgress? {
    let (id, state) = (entries[slot].id, entries[slot].record.state)
    var progress: BatchProgress?
    for other in dependents(of: slot) {
      if entries[other].record.dependencies.failed[id] != nil {
        entries[other].record.dependencies.failed[id] = nil
        addBytes(-Self.failureByteCount, to: other)
      }
      guard names(other, id) else { continue }
      graph.addOpen(1, to: entries[other].id)
      reviewWaiting(other)
    }
    if let follower = entries[slot].record.presentDependencies?.follower {
      progress = changeProgress(ofBatch: follower) { $0.count(state, -1) }
    }
    return progress
  }

  private mutating func restartAlong(_ slot: Int, availableDate: Date) {
    leaveLine(slot)
    restart(slot, availableDate: availableDate)
  }

  /// Makes a task wait as if it were new.
  mutating func restart(_ slot: Int, availableDate: Date) {
    if entries[slot].record.state.isFinished { holdKeyAgain(slot) }
    addBytes(-entries[slot].record.failureByteCount, to: slot)
    if entries[slot].record.presentDependencies?.cause != nil {
      addBytes(-Self.causeByteCount, to: slot)
    }
    setState(.waiting, of: slot)
    entries[slot].record.restart(availableDate: availableDate)
    joinOrder(slot)
    lineUpAnew(slot)
  }

  // MARK: Removals

  /// Removes the tasks that were cancelled because of a task that is about to be removed.
  mutating func removeForOthers(_ slot: Int) -> Consequences {
    let others = removable(from: slot)
    let consequences = Consequences(tasks: others.map { entries[$0].id }.sorted())
    for other in others { remove(other) }
    return consequences
  }
}
