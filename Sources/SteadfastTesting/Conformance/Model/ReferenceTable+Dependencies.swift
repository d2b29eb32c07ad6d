package import SteadfastQueue
import SystemFoundation

/// Dependencies in the reference.
extension ReferenceTable {
  // MARK: Dependents

  /// Returns the tasks that depend on a task or follow its batch, in the order of their IDs.
  private func dependents(of record: TaskRecord) -> [TaskRecord] {
    let (id, follower) = (record.id, record.dependencies.follower)
    return sortedRecords { $0.id == follower || $0.dependencies.tasks.contains(id) }
  }

  /// Returns the tasks that satisfy a predicate, in the order of their IDs.
  private func sortedRecords(where isWanted: (TaskRecord) -> Bool) -> [TaskRecord] {
    entries.map(\.record).filter(isWanted).sorted { $0.id < $1.id }
  }

  /// Returns whether the end of the task may affect other tasks.
  func affectsOthers(_ record: TaskRecord) -> Bool {
    record.dependencies.follower != nil
      || entries.contains { $0.record.dependencies.tasks.contains(record.id) }
  }

  /// Returns whether a stored task depends on the task with this ID, or has it as its follower.
  func isAwaited(_ id: TaskID) -> Bool {
    entries.contains { entry in
      let dependencies = entry.record.dependencies
      return dependencies.follower == id || dependencies.tasks.contains(id)
    }
  }

  /// The tasks that wait for an unfinished task.
  var waitingForOthers: Set<TaskID> {
    let unfinished = entries.map(\.record).filter { !$0.state.isFinished }
    let ids = Set(unfinished.map(\.id))
    let naming = unfinished.filter { !$0.dependencies.tasks.isDisjoint(with: ids) }.map(\.id)
    return Set(naming + unfinished.compactMap(\.dependencies.follower))
  }

  /// Returns the tasks that a change to a task may affect.
  ///
  /// They are the task, its dependents, the dependents of those, and so on.
  package func tasksAffected(byChangeTo id: TaskID) -> Set<TaskID> {
    var (found, next): (Set<TaskID>, [TaskID]) = ([id], [id])
    while let id = next.popLast() {
      guard let record = record(of: id) else { continue }
      next += dependents(of: record).map(\.id).filter { found.insert($0).inserted }
    }
    return found
  }

  // MARK: Insertions

  /// Returns the first dependency, by ID, because of which a new task could never start.
  func unmetDependency(of record: TaskRecord) -> TaskID? {
    guard !record.state.isFinished else { return nil }
    return record.dependencies.tasks.filter { id in
      guard let state = self.record(of: id)?.state else { return true }
      return state != .succeeded && state.isFinished
        && record.dependencies.rule == .allSucceeded
    }.min()
  }

  /// Counts a new task in its batch, and returns the task with the recorded failures of the tasks
  /// that it depends on.
  mutating func addToBatch(_ record: TaskRecord) -> TaskRecord {
    var record = record
    record.dependencies = record.dependencies.asChosen
    for id in record.dependencies.tasks.sorted() {
      guard let state = self.record(of: id)?.state, state.isFinished, state != .succeeded else {
        continue
      }
      record.dependencies.note(id, endedAs: state)
    }
    if let batch = earlyBatches.removeValue(forKey: record.id) { record.dependencies.batch = batch }
    if let follower = record.dependencies.follower {
      let state = record.state
      updateBatch(before: follower) { batch in
        batch.total += 1
        if state == .succeeded {
          batch.succeeded += 1
        } else if state.isFinished {
          batch.failed += 1
        }
      }
    }
    return record
  }

  private mutating func updateBatch(
    before follower: TaskID?,
    _ change: (inout BatchProgress) -> Void
  ) {
    guard let follower else { return }
    guard let index = entries.firstIndex(where: { $0.record.id == follower }) else {
      return change(&earlyBatches[follower, default: BatchProgress()])
    }
    var batch = entries[index].record.dependencies.batch ?? BatchProgress()
    change(&batch)
    entries[index].record.dependencies.batch = batch
  }

  /// Returns the progress of the batch to which a task belongs, if the follower exists.
  private func batchProgress(of record: TaskRecord) -> BatchProgress? {
    record.dependencies.follower.flatMap(self.record)?.dependencies.batch
  }

  private mutating func changeDependencies(
    of id: TaskID,
    _ change: (inout TaskDependencies) -> Void
  ) {
    guard let index = entries.firstIndex(where: { $0.record.id == id }) else { return }
    change(&entries[index].record.dependencies)
  }

  // MARK: Changes

  /// Applies the consequences of a change to the tasks that wait for the changed task.
  ///
  /// The change itself has already been applied; `before` is the task before the change.
  /// - Returns: The consequences; `nil` if a change of this kind never affects other tasks.
  mutating func applyConsequences(of change: TaskChange, before: TaskRecord) -> Consequences? {
    switch change {
    case .end(_, let end):
      cascadeEnd(of: before, as: end.state, at: end.date, retains: end.retains)
    case .move(_, let move) where move.kind == .restart && before.state.isFinished:
      cascadeRestart(of: before, by: move)
    case .remove: Consequences(tasks: removeAlong(with: before.id))
    default: nil
    }
  }

  private mutating func cascadeEnd(
    of record: TaskRecord,
    as state: TaskState,
    at date: Date,
    retains: Bool
  ) -> Consequences {
    var (next, cancelled) = ([(record, state)], Set<TaskID>())
    while let (current, state) = next.popLast() {
      updateBatch(before: current.dependencies.follower) { batch in
        if state == .succeeded { batch.succeeded += 1 } else { batch.failed += 1 }
      }
      guard state != .succeeded else { continue }
      for other in dependents(of: current) {
        changeDependencies(of: other.id) { $0.note(current.id, endedAs: state) }
        guard other.dependencies.rule == .allSucceeded, other.state != .running,
          !other.state.isFinished
        else { continue }
        changeDependencies(of: other.id) { $0.cause = min($0.cause ?? current.id, current.id) }
        if cancelled.insert(other.id).inserted { next.append((other, .cancelled)) }
      }
    }
    for id in cancelled.sorted() {
      _ = change(
        id,
        in: [.waiting, .suspended, .parked, .paused],
        to: .cancelled,
        retains: retains,
        at: date
      )
    }
    return Consequences(tasks: cancelled.sorted(), batch: batchProgress(of: record))
  }

  private mutating func cascadeRestart(of record: TaskRecord, by move: TaskMove) -> Consequences {
    var (round, restarted) = ([record], Set<TaskID>())
    while !round.isEmpty {
      for task in round { revertEnd(of: task) }
      let causes = Set(round.map(\.id))
      round = []
      let others = sortedRecords { other in
        other.state == .cancelled && other.dependencies.cause.map(causes.contains) ?? false
      }
      for other in others {
        if staysCancelled(other) {
          let left = other.dependencies.failed.keys.filter { self.record(of: $0) != nil }
          changeDependencies(of: other.id) { $0.cause = left.min() }
        } else {
          if other.uniqueKey != nil { makeHolder(other.id) }
          restarted.insert(other.id)
          round.append(other)
        }
      }
    }
    for id in restarted.sorted() {
      _ = change(id, in: [.cancelled], to: .waiting) { $0.move(by: move) }
    }
    return Consequences(tasks: restarted.sorted(), batch: batchProgress(of: record))
  }

  /// Reverts the effects of a task's end on its batch and its dependents.
  private mutating func revertEnd(of record: TaskRecord) {
    updateBatch(before: record.dependencies.follower) { batch in
      if record.state == .succeeded { batch.succeeded -= 1 } else { batch.failed -= 1 }
    }
    for other in dependents(of: record) {
      changeDependencies(of: other.id) { $0.failed[record.id] = nil }
    }
  }

  /// Returns whether a task stays cancelled when the task that caused its cancellation restarts.
  private func staysCancelled(_ record: TaskRecord) -> Bool {
    let dependencies = record.dependencies
    return !dependencies.failed.isEmpty
      || (dependencies.batch?.failed ?? 0) > dependencies.failed.count
      || holder(insteadOf: record) != nil
  }

  /// Removes the tasks that were cancelled because of a task, directly or indirectly.
  ///
  /// - Returns: The IDs of the removed tasks, in order.
  @discardableResult
  mutating func removeAlong(with id: TaskID) -> [TaskID] {
    var (next, removed) = ([id], [TaskID]())
    while let current = next.popLast() {
      let others = sortedRecords { $0.state == .cancelled && $0.dependencies.cause == current }
      removed += others.map(\.id)
      next += others.map(\.id)
      entries.removeAll { entry in others.contains { $0.id == entry.record.id } }
    }
    return removed.sorted()
  }
}
