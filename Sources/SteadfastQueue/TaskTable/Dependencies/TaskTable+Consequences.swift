#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

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
