import Foundation
import SteadfastTesting

/// Stores that break a rule of tasks with a unique key that have expired.
extension Mutant {
  static let expiredTwins = [
    Mutant("a task that has expired keeps new ones out", breaks: "unique.expired") {
      $0.expiredKeepOut { $0.keyRole == .holder }
    },
    Mutant("a task that has expired is taken over", breaks: "unique.expired") {
      $0.apply = { batch, table in
        guard case .insert(let record, .replace) = batch.first,
          let index = table.firstExpired(before: record, where: { _ in true })
        else { return table.apply(batch) }
        table.entries[index].record.expiryDateIsFar()
        return table.apply(batch)
      }
    },
    Mutant("a task that has expired keeps its role beside a new one", breaks: "unique.expired") {
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
    Mutant("a task loses its key while it runs", breaks: "unique.expired-running") {
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
    Mutant("a successor that has expired keeps new ones out", breaks: "unique.expired-successor") {
      $0.expiredKeepOut { $0.keyRole == .successor }
    },
    Mutant("a successor that will have expired supersedes", breaks: "unique.expired-successor") {
      $0.apply = { batch, table in
        guard case .retry(let lease, let date, let count, let failure, _) = batch.first else {
          return table.apply(batch)
        }
        let outcomes = table.apply([
          .retry(lease, availableDate: .distantPast, retryCount: count, failure: failure)
        ])
        for index in table.entries.indices
        where table.entries[index].record.availableDate == .distantPast {
          table.entries[index].record.availableDate = date
        }
        return outcomes
      }
    },
    Mutant("what has lost its role is updated", breaks: "unique.displaced") {
      $0.apply = { batch, table in
        guard case .update(let id, let update) = batch.first,
          let index = table.entries.firstIndex(where: { $0.record.id == id }),
          table.entries[index].record.keyRole == nil
        else { return table.apply(batch) }
        table.entries[index].record.apply(update)
        return [.done]
      }
    },
    Mutant("what has lost its role is restarted without it", breaks: "unique.displaced") {
      $0.apply = { batch, table in
        guard case .restart(.unclaimed(let id), let date, _) = batch.first,
          let index = table.entries.firstIndex(where: { $0.record.id == id }),
          table.entries[index].record.keyRole == nil
        else { return table.apply(batch) }
        table.entries[index].record.restart(availableDate: date)
        return [.done]
      }
    },
  ]
}

extension PlainStore.Behaviour {
  /// Leaves a new task out because of some tasks that have expired.
  fileprivate mutating func expiredKeepOut(_ isMeant: @escaping @Sendable (TaskRecord) -> Bool) {
    apply = { batch, table in
      guard case .insert(let record, _) = batch.first,
        let index = table.firstExpired(before: record, where: isMeant)
      else { return table.apply(batch) }
      return [.duplicate(of: table.entries[index].record.id)]
    }
  }
}

extension ReferenceTable {
  /// The first task with the key of a new one that does not run, and has expired.
  fileprivate func firstExpired(
    before record: TaskRecord,
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
  /// Makes the task one that has not expired.
  fileprivate mutating func expiryDateIsFar() {
    apply(TaskUpdate(expiryDate: .distantFuture))
  }
}
