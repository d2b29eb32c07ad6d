import Foundation
import SteadfastTesting

/// Stores that break a rule about tasks that wait for other tasks.
extension Mutant {
  static let waiting = [
    Mutant("a parked task does not block its dependents", breaks: "dependencies.waits") {
      $0.afterEachChange { change, _, table in
        guard case .move(.claimed(let lease), let move) = change, move.kind == .park else { return }
        table.editDependencies { $1.tasks.remove(lease.id) }
      }
    },
    Mutant("a task with dependencies makes the next date now", breaks: "dependencies.waits") {
      $0.nextDate = { date, request, table in
        let waiting = table.records.filter { $0.state == .waiting && !$0.dependencies.isEmpty }
        return waiting.contains { $0.availableDate <= request.now } ? request.now : date
      }
    },
    Mutant("a missing dependency is ignored", breaks: "dependencies.unmet") {
      $0.apply = { batch, table in
        var known = Set(table.entries.map(\.record.id))
        return table.apply(
          batch.map { change in
            guard case .insert(var record, let policy) = change else { return change }
            record.dependencies.tasks.formIntersection(known)
            known.insert(record.id)
            return .insert(record, onDuplicate: policy)
          }
        )
      }
    },
    Mutant("the rest of a batch with an unmet dependency is stored", breaks: "dependencies.unmet") {
      $0.apply = { batch, table in
        var trial = table
        let outcomes = trial.apply(batch)
        let unmet = outcomes.firstIndex { if case .unmetDependency = $0 { true } else { false } }
        guard let unmet else { return table.apply(batch) }
        var rest = batch
        rest.remove(at: unmet)
        var stored = table.apply(rest)
        stored.insert(outcomes[unmet], at: unmet)
        return stored
      }
    },
    Mutant("the outcome names the greatest unmet dependency", breaks: "dependencies.unmet") {
      $0.replaceOutcomes { change, outcome in
        guard case .unmetDependency = outcome, case .insert(let record, _) = change else {
          return outcome
        }
        return record.dependencies.tasks.max().map { .unmetDependency($0) } ?? outcome
      }
    },
    Mutant("a rejected task satisfies later dependencies", breaks: "dependencies.unmet") {
      $0.apply = { batch, table in
        var refused: Set<TaskID> = []
        return zip(batch, table.apply(batch)).map { change, outcome in
          guard case .unmetDependency(let id) = outcome, case .insert(let record, _) = change else {
            return outcome
          }
          refused.insert(record.id)
          let others = record.dependencies.tasks.subtracting(refused)
          guard refused.contains(id), let other = others.min() else { return outcome }
          return .unmetDependency(other)
        }
      }
    },
    Mutant("a dependency that ended earlier is not recorded", breaks: "dependencies.ended-before") {
      $0.editChangedTask { change, entry, _ in
        if case .insert = change { entry.record.dependencies.failed = [:] }
      }
    },
    Mutant("a new task's own cause is kept", breaks: "dependencies.ended-before") {
      $0.editChangedTask { change, entry, _ in
        guard case .insert(let record, _) = change else { return }
        entry.record.dependencies.cause = record.dependencies.cause
      }
    },
    Mutant("a member inserted before its follower is not counted", breaks: "dependencies.total") {
      $0.apply = { batch, table in
        let before = table
        let outcomes = table.apply(batch)
        for case (.insert(let record, _), .done) in zip(batch, outcomes) {
          guard let follower = record.dependencies.follower, before.record(of: follower) == nil,
            let first = batch.firstIndex(where: { $0.affectedTask == record.id }),
            batch.dropFirst(first).contains(where: { $0.affectedTask == follower })
          else { continue }
          table.editDependencies { if $0 == follower { $1.batch?.total -= 1 } }
        }
        return outcomes
      }
    },
    Mutant("a skipped duplicate is counted", breaks: "dependencies.total") {
      $0.apply = { batch, table in
        let outcomes = table.apply(batch)
        for case (.insert(let record, _), .duplicate) in zip(batch, outcomes) {
          let follower = record.dependencies.follower
          table.editDependencies { if $0 == follower { $1.batch?.total += 1 } }
        }
        return outcomes
      }
    },
    Mutant("a reused ID counts only once for a batch", breaks: "dependencies.member-again") {
      $0.afterEachChange { change, before, table in
        guard case .insert(let record, _) = change, before.record(of: record.id) == nil,
          let follower = record.dependencies.follower,
          before.record(of: follower)?.dependencies.failed[record.id] != nil
        else { return }
        table.editDependencies { if $0 == follower { $1.batch?.total -= 1 } }
      }
    },
    Mutant("a repeated insertion is counted again", breaks: "dependencies.member-again") {
      $0.afterEachChange { change, before, table in
        guard case .insert(let record, _) = change, before.record(of: record.id) != nil else {
          return
        }
        let follower = record.dependencies.follower
        table.editDependencies { if $0 == follower { $1.batch?.total += 1 } }
      }
    },
  ]

  static let waitingInStores = [
    Mutant("a task depends on itself", breaks: "form.dependencies") {
      $0.overlooks = { $0.message.contains("waits for itself") }
    },
    Mutant("a task has any number of dependencies", breaks: "form.dependencies") {
      $0.overlooks = { $0.message.contains("or enqueue a batch") }
    },
    Mutant("a task with dependencies replaces another one", breaks: "form.dependencies") {
      $0.overlooks = { $0.message.contains("can't replace") }
    },
    Mutant("recorded failures are lost when opened again", breaks: "reopen.dependencies") {
      $0.reopen = { table in
        table.interrupt()
        table.editDependencies { $1.failed = [:] }
      }
    },
    Mutant("progress is lost when opened again", breaks: "reopen.dependencies") {
      $0.reopen = { table in
        table.interrupt()
        table.editDependencies { $1.batch = nil }
      }
    },
    Mutant("dependencies are lost when opened again", breaks: "reopen.dependencies") {
      $0.reopen = { table in
        table.interrupt()
        table.editDependencies { $1.tasks = [] }
      }
    },
    Mutant("another opening loses dependencies", breaks: "sharing.dependencies", isShared: true) {
      $0.reopen = { table in table.editDependencies { $1.tasks = [] } }
      $0.opensAnew = true
    },
    Mutant("two concurrent ends count as one", breaks: "concurrency.dependencies") {
      $0.racesInApply = true
    },
  ]
}

extension ReferenceTable {
  /// Runs `body` on the dependencies of each task that has any or belongs to a batch.
  mutating func editDependencies(_ body: (TaskID, inout TaskDependencies) -> Void) {
    for index in entries.indices {
      let record = entries[index].record
      guard !record.dependencies.isEmpty || record.dependencies.batch != nil else { continue }
      body(record.id, &entries[index].record.dependencies)
    }
  }
}

extension TaskDependencies {
  /// Whether the task depends on no other task and belongs to no batch.
  var isEmpty: Bool { tasks.isEmpty && follower == nil }
}
