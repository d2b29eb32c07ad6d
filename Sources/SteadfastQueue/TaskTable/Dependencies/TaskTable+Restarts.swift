#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

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
