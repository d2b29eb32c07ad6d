import SteadfastQueue

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// Dependencies in the reference.
extension ReferenceTable {
  // MARK: Who waits for whom

  /// Whether a task names another one, or follows its batch.
  private func waits(_ record: TaskRecord, for other: TaskRecord) -> Bool {
    record.dependencies.tasks.contains(other.id) || record.id == other.dependencies.follower
  }

  /// The tasks that name a task, or follow its batch, in the order of their IDs.
  private func dependents(of record: TaskRecord) -> [TaskRecord] {
    records.filter { waits($0, for: record) }
  }

  /// Whether the end of a task is answered with its consequences.
  func concernsOthers(_ record: TaskRecord) -> Bool {
    record.dependencies.follower != nil
      || entries.contains { $0.record.dependencies.tasks.contains(record.id) }
  }

  /// The tasks that wait for one that has not ended.
  var waitingForOthers: Set<TaskID> {
    let unfinished = entries.map(\.record).filter { !$0.state.isFinished }
    let ids = Set(unfinished.map(\.id))
    let naming = unfinished.filter { !$0.dependencies.tasks.isDisjoint(with: ids) }.map(\.id)
    return Set(naming + unfinished.compactMap(\.dependencies.follower))
  }

  /// Whether a change to one of two tasks may change the other one, too.
  func areRelated(_ id: TaskID, _ other: TaskID) -> Bool {
    reaches(id, other) || reaches(other, id)
  }

  private func reaches(_ id: TaskID, _ other: TaskID) -> Bool {
    var (seen, next): (Set<TaskID>, [TaskID]) = ([id], [id])
    while let current = next.popLast() {
      if current == other { return true }
      guard let record = record(of: current) else { continue }
      next += dependents(of: record).map(\.id).filter { seen.insert($0).inserted }
    }
    return false
  }

  // MARK: Insertions

  func unmetDependency(of record: TaskRecord) -> TaskID? {
    guard !record.state.isFinished else { return nil }
    return record.dependencies.tasks.filter { id in
      guard let state = self.record(of: id)?.state else { return true }
      return state != .succeeded && state.isFinished
        && record.dependencies.rule == .allSucceeded
    }.min()
  }

  /// Counts a new task for its batch, and returns it with what has happened to those it waits for.
  mutating func joined(_ record: TaskRecord) -> TaskRecord {
    var record = record
    for id in record.dependencies.tasks {
      guard let state = self.record(of: id)?.state, state.isFinished, state != .succeeded else {
        continue
      }
      record.dependencies.failed[id] = state
    }
    if let batch = earlyBatches.removeValue(forKey: record.id) { record.dependencies.batch = batch }
    if let follower = record.dependencies.follower {
      let state = record.state
      count(follower) { batch in
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

  @discardableResult
  private mutating func count(
    _ follower: TaskID,
    _ change: (inout BatchProgress) -> Void
  ) -> BatchProgress? {
    guard let index = entries.firstIndex(where: { $0.record.id == follower }) else {
      change(&earlyBatches[follower, default: BatchProgress()])
      return nil
    }
    var batch = entries[index].record.dependencies.batch ?? BatchProgress()
    change(&batch)
    entries[index].record.dependencies.batch = batch
    return batch
  }

  private mutating func edit(_ id: TaskID, _ change: (inout TaskDependencies) -> Void) {
    guard let index = entries.firstIndex(where: { $0.record.id == id }) else { return }
    change(&entries[index].record.dependencies)
  }

  // MARK: Changes

  /// Changes what a change to a task means for others, which wait for it.
  ///
  /// `before` is the task before the change, which has been applied to it.
  /// - Returns: What has changed; `nil` if such a change never concerns others.
  mutating func consequences(of change: TaskChange, before: TaskRecord) -> Consequences? {
    switch change {
    case .succeed: end(before, .succeeded, at: .distantPast, retains: true)
    case .abandon(_, let failure, let retains):
      end(before, .abandoned, at: failure.date, retains: retains)
    case .cancel(_, let date, let retains):
      end(before, .cancelled, at: date, retains: retains)
    case .restart(_, let date) where before.state.isFinished:
      restart(before, at: date)
    case .remove: Consequences(tasks: removeAlong(with: before.id))
    default: nil
    }
  }

  private mutating func end(
    _ record: TaskRecord,
    _ state: TaskState,
    at date: Date,
    retains: Bool
  ) -> Consequences {
    var consequences = Consequences()
    var (next, cancelled) = ([(record, state)], Set<TaskID>())
    while let (current, state) = next.popLast() {
      let progress = current.dependencies.follower.flatMap { follower in
        count(follower) { batch in
          if state == .succeeded { batch.succeeded += 1 } else { batch.failed += 1 }
        }
      }
      if current.id == record.id { consequences.batch = progress }
      guard state != .succeeded else { continue }
      for other in dependents(of: current) {
        edit(other.id) { $0.note(current.id, endedAs: state) }
        guard other.dependencies.rule == .allSucceeded, other.state != .running,
          !other.state.isFinished, cancelled.insert(other.id).inserted
        else { continue }
        edit(other.id) { $0.cause = current.id }
        next.append((other, .cancelled))
      }
    }
    consequences.tasks = cancelled.sorted()
    for id in consequences.tasks {
      _ = change(
        id,
        in: [.waiting, .parked, .paused],
        to: .cancelled,
        retains: retains,
        at: date
      )
    }
    return consequences
  }

  private mutating func restart(_ record: TaskRecord, at date: Date) -> Consequences {
    var consequences = Consequences()
    var next = [record]
    while let current = next.popLast() {
      let progress = current.dependencies.follower.flatMap { follower in
        count(follower) { batch in
          if current.state == .succeeded { batch.succeeded -= 1 } else { batch.failed -= 1 }
        }
      }
      if current.id == record.id { consequences.batch = progress }
      for other in dependents(of: current) { edit(other.id) { $0.failed[current.id] = nil } }
      for other in dependents(of: current)
      where other.state == .cancelled && other.dependencies.cause == current.id {
        if goesOnWaiting(other) {
          let left = other.dependencies.failed.keys.filter { self.record(of: $0) != nil }
          edit(other.id) { $0.cause = left.min() }
        } else {
          if other.uniqueKey != nil { setHolder(other.id) }
          consequences.tasks.append(other.id)
          next.append(other)
        }
      }
    }
    consequences.tasks.sort()
    for id in consequences.tasks {
      _ = change(id, in: [.cancelled], to: .waiting) { $0.restart(availableDate: date) }
    }
    return consequences
  }

  private func goesOnWaiting(_ record: TaskRecord) -> Bool {
    let dependencies = record.dependencies
    return !dependencies.failed.isEmpty
      || (dependencies.batch?.failed ?? 0) > dependencies.failed.count
      || holder(insteadOf: record) != nil
  }

  /// Removes the tasks that were cancelled because of another one.
  ///
  /// - Returns: Their IDs, in order.
  @discardableResult
  mutating func removeAlong(with id: TaskID) -> [TaskID] {
    var (next, removed) = ([id], [TaskID]())
    while let current = next.popLast() {
      let others = records.filter { $0.state == .cancelled && $0.dependencies.cause == current }
      removed += others.map(\.id)
      next += others.map(\.id)
      entries.removeAll { entry in others.contains { $0.id == entry.record.id } }
    }
    return removed.sorted()
  }
}

extension TaskChange {
  /// The task that the change concerns, if it is there and the change is for it alone.
  var taskID: TaskID? {
    switch self {
    case .succeed(let lease, _, _), .retry(let lease, _, _, _), .abandon(let lease, _, _),
      .release(let lease), .park(let lease, _), .extend(let lease, _):
      lease.id
    case .cancel(let target, _, _), .pause(let target), .restart(let target, _),
      .reschedule(let target, _):
      target.id
    case .resume(let id), .remove(let id), .update(let id, _): id
    case .insert, .unpark, .prune, .rebase: nil
    @unknown default: nil
    }
  }
}
