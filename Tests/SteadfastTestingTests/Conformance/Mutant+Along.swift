import Foundation
import SteadfastTesting

/// Stores that break a rule about how an end, a restart or a removal cascades to other tasks.
extension Mutant {
  static let endsAlong = [
    Mutant("a success is recorded", breaks: "dependencies.noted") {
      $0.afterEachChange { change, _, table in
        guard case .end(.claimed(let lease), let end) = change, end.state == .succeeded else {
          return
        }
        table.editDependencies { id, dependencies in
          guard dependencies.rule == .allEnded, dependencies.tasks.contains(lease.id) else {
            return
          }
          dependencies.note(lease.id, endedAs: .succeeded)
        }
      }
    },
    Mutant("an abandoned dependency is recorded as cancelled", breaks: "dependencies.noted") {
      $0.afterEachChange { change, _, table in
        guard case .end(.claimed(let lease), let end) = change, end.state == .abandoned else {
          return
        }
        table.editDependencies { id, dependencies in
          guard dependencies.rule == .allEnded, dependencies.tasks.contains(lease.id) else {
            return
          }
          dependencies.note(lease.id, endedAs: .cancelled)
        }
      }
    },
    Mutant("an outcome reports progress for a removed follower", breaks: "dependencies.progress") {
      $0.replaceConsequences { change, consequences, before in
        guard case .end(.claimed(let lease), let end) = change, end.state == .succeeded,
          consequences.batch == nil,
          before.record(of: lease.id)?.dependencies.follower != nil
        else { return consequences }
        return Consequences(tasks: consequences.tasks, batch: BatchProgress())
      }
    },
    Mutant("a cascaded cancellation has a different date", breaks: "dependencies.cancelled") {
      $0.editOtherTasks { change, _, entry, _ in
        guard change.end?.state == .abandoned, entry.record.state == .cancelled else { return }
        entry.record.finishedDate = .distantPast
      }
    },
    Mutant("the cause is the failed task with the greatest ID", breaks: "dependencies.cancelled") {
      $0.editOtherTasks { _, before, entry, _ in
        guard entry.record.state == .cancelled, before.record.state != .cancelled else { return }
        entry.record.dependencies.cause = entry.record.dependencies.failed.keys.max()
      }
    },
    Mutant("a cancellation does not cascade to a paused task", breaks: "dependencies.cancelled") {
      $0.editOtherTasks { _, before, entry, _ in
        guard before.record.state == .paused else { return }
        entry.record.state = .paused
      }
    },
    Mutant("cascaded cancellations are always retained", breaks: "dependencies.not-retained") {
      $0.afterEachChange { change, before, table in
        guard case .end(let target, let end) = change, end.state == .cancelled, !end.retains else {
          return
        }
        table.restoreCascadedRemovals(from: before, except: target.id)
      }
    },
    Mutant("a reused ID counts again for its first batch", breaks: "dependencies.member-gone") {
      $0.afterEachChange { change, before, table in
        guard case .end(let target, let end) = change, end.state == .cancelled,
          before.record(of: target.id)?.dependencies.follower == nil
        else { return }
        table.editDependencies { _, dependencies in
          if dependencies.batch?.succeeded == 1 { dependencies.batch?.failed += 1 }
        }
      }
    },
    Mutant("a cancellation cascades to a running task", breaks: "dependencies.running") {
      $0.editOtherTasks { change, before, entry, id in
        guard change.end?.state == .cancelled, before.record.state == .running,
          entry.record.dependencies.failed[id] != nil
        else { return }
        entry.record.state = .cancelled
        entry.lease = nil
      }
    },
    Mutant("a task that has ended records no failed dependency", breaks: "dependencies.running") {
      $0.editOtherTasks { change, before, entry, id in
        guard change.end?.state == .cancelled, before.record.state == .succeeded else { return }
        entry.record.dependencies.failed[id] = nil
      }
    },
  ]

  static let restartsAlong = [
    Mutant("tasks of a cascaded restart come in reverse order", breaks: "dependencies.restarted") {
      $0.afterEachChange { change, before, table in
        guard case .move(let target, let move) = change, move.kind == .restart else { return }
        let along = table.entries.indices.filter { index in
          let record = table.entries[index].record
          return record.id != target.id && record.state == .waiting
            && before.record(of: record.id)?.state == .cancelled
        }
        let places = along.map { table.entries[$0].place }.sorted()
        let order = along.sorted { table.entries[$0].place > table.entries[$1].place }
        for (place, index) in zip(places, order) { table.entries[index].place = place }
      }
    },
    Mutant("a cascaded restart keeps the old date", breaks: "dependencies.restarted") {
      $0.editOtherTasks { change, before, entry, _ in
        guard change.move?.kind == .restart else { return }
        entry.record.availableDate = before.record.availableDate
      }
    },
    Mutant("a restarted member still counts as failed", breaks: "dependencies.restarted") {
      $0.editOtherTasks { change, before, entry, _ in
        guard change.move?.kind == .restart, entry.record.state == .waiting,
          let failed = before.record.dependencies.batch?.failed
        else { return }
        entry.record.dependencies.batch?.failed = failed
      }
    },
    Mutant("one restarted dependency of several restarts a follower", breaks: "dependencies.left") {
      $0.editTasksLeftCancelled { before, entry, id in
        guard entry.record.uniqueKey == nil, before.record.dependencies.cause == id,
          !entry.record.dependencies.failed.isEmpty
        else { return }
        entry.record.state = .waiting
      }
    },
    Mutant("a removed task becomes the cause", breaks: "dependencies.left") {
      $0.editTasksLeftCancelled { before, entry, _ in
        guard entry.record.dependencies.cause == nil else { return }
        entry.record.dependencies.cause = entry.record.dependencies.failed.keys.min()
      }
    },
    Mutant("failures beyond the recorded ones do not count", breaks: "dependencies.unnoted") {
      $0.editTasksLeftCancelled { before, entry, _ in
        guard entry.record.dependencies.failed.isEmpty, entry.record.uniqueKey == nil else {
          return
        }
        entry.record.state = .waiting
      }
    },
    Mutant("a cascaded restart ignores a taken unique key", breaks: "dependencies.key-taken") {
      $0.editTasksLeftCancelled { before, entry, _ in
        guard entry.record.dependencies.failed.isEmpty, entry.record.uniqueKey != nil else {
          return
        }
        entry.record.state = .waiting
      }
    },
    Mutant("of two tasks with one key, the later restarts", breaks: "dependencies.key-taken") {
      $0.afterEachChange { change, before, table in
        guard case .move(let target, let move) = change, move.kind == .restart else { return }
        let along = table.entries.indices.filter { index in
          let record = table.entries[index].record
          let old = before.record(of: record.id)
          return record.uniqueKey != nil && old?.dependencies.cause == target.id
            && record.dependencies.failed.isEmpty && old?.state == .cancelled
        }
        guard along.count == 2 else { return }
        let (first, second) = (table.entries[along[0]], table.entries[along[1]])
        table.entries[along[0]].record.state = second.record.state
        table.entries[along[1]].record.state = first.record.state
      }
    },
  ]

  static let removalsAlong = [
    Mutant("a removal does not cascade", breaks: "dependencies.removed") {
      $0.afterEachChange { change, before, table in
        if case .remove(let id) = change { table.restoreCascadedRemovals(from: before, except: id) }
      }
    },
    Mutant("a removal reports the batch's progress", breaks: "dependencies.removed") {
      $0.replaceConsequences { change, consequences, before in
        guard case .remove(let id) = change,
          let follower = before.record(of: id)?.dependencies.follower
        else { return consequences }
        let batch = before.record(of: follower)?.dependencies.batch
        return Consequences(tasks: consequences.tasks, batch: batch)
      }
    },
    Mutant("a cascaded cancellation is pruned without its cause", breaks: "dependencies.pruned") {
      $0.afterEachChange { change, _, table in
        guard case .broad(.prune(let state, let date?, _, _, _)) = change else { return }
        table.entries.removeAll { entry in
          entry.record.state == state && entry.record.dependencies.cause != nil
            && entry.record.finishedDate.map { $0 < date } ?? false
        }
      }
    },
    Mutant("a cascaded cancellation outlives its cause's pruning", breaks: "dependencies.pruned") {
      $0.afterEachChange { change, before, table in
        guard case .broad(.prune) = change else { return }
        let along = before.entries.filter { $0.record.dependencies.cause != nil }
        table.entries += along.filter { table.record(of: $0.record.id) == nil }
      }
    },
    Mutant("a task that others depend on is superseded", breaks: "dependencies.superseded") {
      $0.apply = { batch, table in
        guard case .move(.claimed(let lease), let move) = batch.first, move.kind == .retry,
          let record = table.record(of: lease.id),
          record.keyRole == .holder
        else { return table.apply(batch) }
        table.editDependencies { id, dependencies in
          dependencies.tasks.remove(lease.id)
          if id == lease.id { dependencies.follower = nil }
        }
        return table.apply(batch)
      }
    },
  ]
}

extension PlainStore.Behaviour {
  /// Replaces the consequences that outcomes report.
  fileprivate mutating func replaceConsequences(
    _ body: @escaping @Sendable (TaskChange, Consequences, ReferenceTable) -> Consequences
  ) {
    apply = { batch, table in
      let before = table
      return zip(batch, table.apply(batch)).map { change, outcome in
        guard case .doneWithConsequences(let consequences) = outcome else { return outcome }
        return .doneWithConsequences(body(change, consequences, before))
      }
    }
  }

  /// Runs `body` on the entry of every task except the changed one; `body` also gets the ID of the
  /// changed task.
  fileprivate mutating func editOtherTasks(
    _ body:
      @escaping @Sendable (
        TaskChange, _ before: ReferenceTable.Entry, inout ReferenceTable.Entry, TaskID
      ) -> Void
  ) {
    afterEachChange { change, before, table in
      guard let id = change.affectedTask else { return }
      let old = Dictionary(uniqueKeysWithValues: before.entries.map { ($0.record.id, $0) })
      for index in table.entries.indices where table.entries[index].record.id != id {
        guard let before = old[table.entries[index].record.id] else { continue }
        body(change, before, &table.entries[index], id)
      }
    }
  }

  /// Runs `body` on each task that stays cancelled although the cause of its cancellation was
  /// restarted.
  fileprivate mutating func editTasksLeftCancelled(
    _ body:
      @escaping @Sendable (
        _ before: ReferenceTable.Entry, inout ReferenceTable.Entry, TaskID
      ) -> Void
  ) {
    editOtherTasks { change, before, entry, id in
      guard change.move?.kind == .restart, before.record.dependencies.cause != nil,
        entry.record.state == .cancelled,
        entry.record.dependencies.cause != before.record.dependencies.cause
      else { return }
      body(before, &entry, id)
    }
  }
}

extension ReferenceTable {
  /// Restores, as cancelled tasks, the tasks that were removed together with the task `id`.
  fileprivate mutating func restoreCascadedRemovals(
    from before: ReferenceTable,
    except id: TaskID
  ) {
    for var entry in before.entries
    where entry.record.id != id && record(of: entry.record.id) == nil {
      entry.record.state = .cancelled
      entries.append(entry)
    }
  }
}
