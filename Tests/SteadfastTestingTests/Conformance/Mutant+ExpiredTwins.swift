import Foundation
import SteadfastTesting

/// Stores that break a rule about expired tasks with a unique key.
extension Mutant {
  static let expiredTwins = [
    Mutant("an expired task rejects new ones", breaks: "unique.expired") {
      $0.rejectDuplicatesOfExpired { $0.keyRole == .holder }
    },
    Mutant("an expired task is replaced", breaks: "unique.expired") {
      $0.apply = { batch, table in
        guard case .insert(let record, .replace) = batch.first,
          let index = table.indexOfFirstExpired(withKeyOf: record, where: { _ in true })
        else { return table.apply(batch) }
        table.entries[index].record.neverExpire()
        return table.apply(batch)
      }
    },
    Mutant("an expired task keeps its role beside a new one", breaks: "unique.expired") {
      $0.apply = { batch, table in
        let before = table
        let outcomes = table.apply(batch)
        for index in table.entries.indices where !table.entries[index].record.state.isFinished {
          guard let old = before.record(of: table.entries[index].record.id) else { continue }
          table.entries[index].record.keyRole = table.entries[index].record.keyRole ?? old.keyRole
        }
        return outcomes
      }
    },
    Mutant("an expired running task loses its key", breaks: "unique.expired-running") {
      $0.apply = { batch, table in
        guard case .insert(let record, _) = batch.first, let key = record.uniqueKey else {
          return table.apply(batch)
        }
        for index in table.entries.indices where table.entries[index].record.uniqueKey == key {
          let expiryDate = table.entries[index].record.expiryDate ?? .distantFuture
          guard expiryDate <= record.createdDate else { continue }
          table.entries[index].record.keyRole = nil
        }
        return table.apply(batch)
      }
    },
    Mutant("an expired successor rejects new tasks", breaks: "unique.expired-successor") {
      $0.rejectDuplicatesOfExpired { $0.keyRole == .successor }
    },
    Mutant("a successor that expires early supersedes", breaks: "unique.expired-successor") {
      $0.apply = { batch, table in
        guard case .move(.claimed(let lease), let move) = batch.first, move.kind == .retry,
          let date = move.availableDate, let count = move.retryCount
        else {
          return table.apply(batch)
        }
        let outcomes = table.apply([
          .retry(lease, availableDate: .distantPast, retryCount: count, failure: move.failure)
        ])
        for index in table.entries.indices
        where table.entries[index].record.availableDate == .distantPast {
          table.entries[index].record.availableDate = date
        }
        return outcomes
      }
    },
    Mutant("a task without its role is updated", breaks: "unique.displaced") {
      $0.apply = { batch, table in
        guard case .update(let id, let update) = batch.first,
          let index = table.entries.firstIndex(where: { $0.record.id == id }),
          table.entries[index].record.keyRole == nil
        else { return table.apply(batch) }
        table.entries[index].record.apply(update)
        return [.done]
      }
    },
    Mutant("a task without its role is restarted without it", breaks: "unique.displaced") {
      $0.apply = { batch, table in
        guard case .move(.unclaimed(let id), let move) = batch.first, move.kind == .restart,
          let index = table.entries.firstIndex(where: { $0.record.id == id }),
          table.entries[index].record.keyRole == nil
        else { return table.apply(batch) }
        table.entries[index].record.move(by: move)
        return [.done]
      }
    },
  ]
}

extension PlainStore.Behaviour {
  /// Rejects a new task as a duplicate of an expired task that satisfies `isMeant`.
  fileprivate mutating func rejectDuplicatesOfExpired(
    where isMeant: @escaping @Sendable (TaskRecord) -> Bool
  ) {
    apply = { batch, table in
      guard case .insert(let record, _) = batch.first,
        let index = table.indexOfFirstExpired(withKeyOf: record, where: isMeant)
      else { return table.apply(batch) }
      return [.duplicate(of: table.entries[index].record.id)]
    }
  }
}

extension ReferenceTable {
  /// Returns the index of the first expired task that has the new task's key and is not running.
  fileprivate func indexOfFirstExpired(
    withKeyOf record: TaskRecord,
    where isMeant: (TaskRecord) -> Bool
  ) -> Int? {
    entries.firstIndex { entry in
      entry.record.isTwin(of: record) && entry.record.keyRole != nil
        && entry.record.state != .running && isMeant(entry.record)
        && entry.record.expiryDate.map { $0 <= record.createdDate } ?? false
    }
  }
}

extension TaskRecord {
  /// Sets the expiry date to the distant future.
  fileprivate mutating func neverExpire() {
    apply(TaskUpdate(expiryDate: .distantFuture))
  }
}
