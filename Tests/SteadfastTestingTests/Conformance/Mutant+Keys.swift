import Foundation
import SteadfastTesting

/// Stores that break a rule about unique keys.
extension Mutant {
  static let uniqueKeys = [
    Mutant("ended tasks make new ones duplicates", breaks: "unique.keep") {
      $0.rejectDuplicatesOfEnded(for: .keep)
    },
    Mutant("ended tasks reject new ones", breaks: "unique.reject") {
      $0.rejectDuplicatesOfEnded(for: .reject)
    },
    Mutant("a replacement is reported as done", breaks: "unique.replace") {
      $0.replaceOutcomes { _, outcome in if case .replaced = outcome { .done } else { outcome } }
    },
    Mutant("a replaced task has no tags", breaks: "unique.replace") {
      $0.rewriteInsertions { $0.copy(tags: []) }
    },
    Mutant("a replaced parked task stays parked", breaks: "unique.replace") {
      $0.editReplacedRecord { entry, _, before in entry.record.state = before.state }
    },
    Mutant("replacements postpone a task forever", breaks: "unique.replace-date") {
      $0.rewriteInsertions { $0.copy(latestDate: .some(nil)) }
    },
    Mutant("a replacement drops the date of a retry", breaks: "unique.replace-date") {
      $0.editReplacedRecord { entry, new, _ in entry.record.availableDate = new.availableDate }
    },
    Mutant("a successor is claimed", breaks: "unique.successor") { $0.makeSuccessorsClaimable() },
    Mutant("further tasks wait behind a successor", breaks: "unique.successor") {
      $0.apply = { batch, table in
        let successors = table.removeRoles { $0.keyRole == .successor }
        defer { table.restoreRoles(successors) }
        return table.apply(batch)
      }
    },
    Mutant("the successor of an abandoned task is not promoted", breaks: "unique.promoted") {
      $0.apply = { batch, table in
        let before = table
        let outcomes = table.apply(batch)
        guard case .end(.claimed(let lease), let end) = batch.first, end.state == .abandoned else {
          return outcomes
        }
        let key = before.record(of: lease.id)?.uniqueKey
        for index in table.entries.indices where table.entries[index].record.uniqueKey == key {
          let id = table.entries[index].record.id
          guard before.record(of: id)?.keyRole == .successor else { continue }
          table.entries[index].record.state = .paused
        }
        return outcomes
      }
    },
    Mutant("a successor is promoted before a released task", breaks: "unique.released") {
      $0.afterEachChange { change, _, table in
        guard case .move(.claimed(let lease), let move) = change, move.kind == .release,
          let key = table.record(of: lease.id)?.uniqueKey
        else { return }
        for index in table.entries.indices where table.entries[index].record.uniqueKey == key {
          let isSuccessor = table.entries[index].record.keyRole == .successor
          table.entries[index].record.keyRole = isSuccessor ? .holder : .successor
        }
      }
    },
    Mutant("a superseding successor resets the retries", breaks: "unique.superseded") {
      $0.apply = { batch, table in
        let outcomes = table.apply(batch)
        for case .superseded(let id) in outcomes {
          for index in table.entries.indices where table.entries[index].record.id == id {
            table.entries[index].record.retryCount = 0
          }
        }
        return outcomes
      }
    },
    Mutant("a snoozed task is not superseded", breaks: "unique.superseded") {
      $0.apply = { batch, table in
        guard case .move(_, let move) = batch.first, move.kind == .retry, move.failure == nil else {
          return table.apply(batch)
        }
        let successors = table.removeRoles { $0.keyRole == .successor }
        defer { table.restoreRoles(successors) }
        return table.apply(batch)
      }
    },
    Mutant("the join policy behaves like keep", breaks: "unique.join") {
      $0.rewrite = { change in
        guard case .insert(let record, .join) = change else { return change }
        return .insert(record, onDuplicate: .keep)
      }
    },
    Mutant("the uniqueness window ends with the task", breaks: "unique.window") {
      $0.rewriteInsertions { $0.copy(uniqueUntil: .some(nil)) }
    },
    Mutant("a task within its uniqueness window is pruned", breaks: "unique.window") {
      $0.rewrite = { change in
        guard case .broad(.prune(let state, let date, let count, _, _)) = change else {
          return change
        }
        return .prune(state, endedBefore: date, keepingLatest: count, now: .distantFuture)
      }
    },
    Mutant("a restarted task seizes a taken key", breaks: "unique.restart") {
      $0.apply = { batch, table in
        guard case .move(.unclaimed(let id), let move) = batch.first, move.kind == .restart,
          let key = table.record(of: id)?.uniqueKey
        else { return table.apply(batch) }
        _ = table.removeRoles { $0.uniqueKey == key }
        return table.apply(batch)
      }
    },
    Mutant("all names share their unique keys", breaks: "unique.names") {
      $0.apply = { batch, table in
        guard case .insert(let record, .keep) = batch.first, batch.count == 1,
          let twin = table.records.first(where: { other in
            other.uniqueKey == record.uniqueKey && other.keyRole == .holder
              && other.name != record.name
          })
        else { return table.apply(batch) }
        return [.duplicate(of: twin.id)]
      }
    },
    Mutant("unique keys are case-insensitive", breaks: "unique.exact") {
      $0.rewriteInsertions { $0.copy(uniqueKey: .some($0.uniqueKey?.lowercased())) }
    },
  ]
}

extension PlainStore.Behaviour {
  /// Rejects a new task as a duplicate of an ended task with the same key, if the new task has this
  /// policy.
  fileprivate mutating func rejectDuplicatesOfEnded(for policy: UniquePolicy) {
    apply = { batch, table in
      guard case .insert(let record, policy) = batch.first, let key = record.uniqueKey,
        let twin = table.records.first(where: { $0.uniqueKey == key && $0.state.isFinished })
      else { return table.apply(batch) }
      return [.duplicate(of: twin.id)]
    }
  }

  /// Removes the roles of successors, so that claims return them.
  fileprivate mutating func makeSuccessorsClaimable() {
    apply = { batch, table in
      let outcomes = table.apply(batch)
      _ = table.removeRoles { $0.keyRole == .successor }
      return outcomes
    }
  }

  /// Runs `body` on the entry of a task that a new task has replaced, with the records of both.
  mutating func editReplacedRecord(
    _ body:
      @escaping @Sendable (inout ReferenceTable.Entry, _ new: TaskRecord, _ old: TaskRecord) -> Void
  ) {
    apply = { batch, table in
      let before = table
      let outcomes = table.apply(batch)
      for case (.insert(let new, _), .replaced(let id)) in zip(batch, outcomes) {
        for index in table.entries.indices where table.entries[index].record.id == id {
          if let old = before.record(of: id) { body(&table.entries[index], new, old) }
        }
      }
      return outcomes
    }
  }
}

extension ReferenceTable {
  /// Removes the roles of the tasks that satisfy `isMeant`, and returns those roles.
  fileprivate mutating func removeRoles(
    where isMeant: (TaskRecord) -> Bool
  ) -> [TaskID: UniqueKeyRole] {
    var roles: [TaskID: UniqueKeyRole] = [:]
    for index in entries.indices where isMeant(entries[index].record) {
      roles[entries[index].record.id] = entries[index].record.keyRole
      entries[index].record.keyRole = nil
    }
    return roles
  }

  /// Gives the tasks the roles that `removeRoles(where:)` returned.
  fileprivate mutating func restoreRoles(_ roles: [TaskID: UniqueKeyRole]) {
    for index in entries.indices {
      if let role = roles[entries[index].record.id] { entries[index].record.keyRole = role }
    }
  }
}
