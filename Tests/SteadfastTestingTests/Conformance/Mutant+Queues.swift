import Foundation
import SteadfastTesting

/// Stores that break a rule about several queues in one store.
extension Mutant {
  static let queues = [
    Mutant("a claim with a limit of one uses the default queue", breaks: "queue.claim") {
      $0.editRequests { request in
        if request.limit == 1 { request.queue = "" }
      }
    },
    Mutant("a scheduled task is in the default queue", breaks: "queue.claim") {
      $0.apply = { batch, table in
        let outcomes = table.apply(batch)
        for index in table.entries.indices {
          let record = table.entries[index].record
          guard record.availableDate > record.createdDate, !record.queue.isEmpty else { continue }
          table.entries[index].record = record.copy(queue: "")
        }
        return outcomes
      }
    },
    Mutant("a look-up in the default queue finds all tasks", breaks: "queue.look-up") {
      $0.editFilters { filter in
        if filter.queue == "" { filter.queue = nil }
      }
    },
    Mutant("all queues share their unique keys", breaks: "queue.keys") {
      $0.apply = { batch, table in
        for case .insert(let record, let policy) in batch.dropFirst() {
          let first = batch.firstInsertion
          guard policy == .reject, let first, record.uniqueKey != nil,
            record.uniqueKey == first.uniqueKey, record.queue != first.queue
          else { continue }
          return batch.map { _ in .duplicate(of: first.id) }
        }
        return table.apply(batch)
      }
    },
    Mutant("a task of a named queue has no order key", breaks: "queue.keys") {
      $0.rewriteInsertions { $0.queue.isEmpty ? $0 : $0.copy(orderKey: .some(nil)) }
    },
    Mutant("unparking affects all queues", breaks: "queue.changes") {
      $0.afterEachChange { change, _, table in
        guard case .broad(.unpark(let name, let queue, _)) = change, !queue.isEmpty else { return }
        table.unpark(name)
      }
    },
    Mutant("pruning affects all queues", breaks: "queue.changes") {
      $0.afterEachChange { change, _, table in
        guard case .broad(.prune(let state, let date, let count, let now, let queue)) = change,
          !queue.isEmpty
        else { return }
        for other in Set(table.entries.map(\.record.queue)) {
          table.prune(state, in: other, endedBefore: date, keepingLatest: count, now: now)
        }
      }
    },
    Mutant("names of queues are compared by canonical equivalence", breaks: "queue.names") {
      $0.matches = { record, filter in
        guard let queue = filter.queue, queue == record.queue else {
          return filter.matches(record)
        }
        var filter = filter
        filter.queue = nil
        return filter.matches(record)
      }
    },
    Mutant("the queue is forgotten when opened again", breaks: "reopen.queues") {
      $0.reopen = { table in
        table.interrupt()
        for index in table.entries.indices {
          table.entries[index].record = table.entries[index].record.replacing(queue: "")
        }
      }
    },
  ]
}

extension [TaskChange] {
  fileprivate var firstInsertion: TaskRecord? {
    for case .insert(let record, _) in self { return record }
    return nil
  }
}
