import Foundation
import SteadfastTesting

/// Stores that break a rule about order keys or conditions.
extension Mutant {
  static let orderKeys = [
    Mutant("tasks with one order key run concurrently", breaks: "order-key.one") {
      $0.rewriteInsertions { $0.copy(orderKey: .some(nil)) }
    },
    Mutant("order keys are separate for each name", breaks: "order-key.one") {
      $0.rewriteInsertions { record in
        record.copy(orderKey: .some(record.orderKey.map { "\(record.name) \($0)" }))
      }
    },
    Mutant("priority overrides the order", breaks: "order-key.one") {
      $0.afterEachChange { _, _, table in
        for index in table.entries.indices {
          let entry = table.entries[index]
          table.entries[index].number =
            entry.number - max(-5, min(5, entry.record.priority.rawValue)) * 1_000
        }
      }
    },
    Mutant("a retried task moves behind the next one", breaks: "order-key.held-up") {
      $0.editChangedTask { change, entry, _ in
        if change.move?.kind == .retry { entry.number = entry.place }
      }
    },
    Mutant("a paused task moves behind the next one", breaks: "order-key.held-up") {
      $0.editChangedTask { change, entry, _ in
        if change.move?.kind == .pause { entry.number = entry.place }
      }
    },
    Mutant("an abandoned task always blocks the next one", breaks: "order-key.ended") {
      $0.editChangedTask { change, entry, _ in
        if change.end?.state == .abandoned {
          entry.record = entry.record.copy(blocksOrderOnFailure: true)
        }
      }
    },
    Mutant("a restarted task moves to the end", breaks: "order-key.restart") {
      $0.editChangedTask { change, entry, _ in
        if change.move?.kind == .restart { entry.number = entry.place }
      }
    },
    Mutant("no task blocks its order key", breaks: "order-key.holds") {
      $0.rewriteInsertions { $0.copy(blocksOrderOnFailure: false) }
    },
    Mutant("a task that blocks its order key is pruned", breaks: "order-key.holds") {
      $0.afterEachChange { change, _, table in
        guard case .broad(.prune(let state, _, _, _, _)) = change else { return }
        table.entries.removeAll { $0.record.state == state && $0.record.blocksOrder }
      }
    },
    Mutant("order keys are ordered by ID when opened again", breaks: "reopen.order-keys") {
      $0.reopen = { table in
        table.interrupt()
        for index in table.entries.indices {
          table.entries[index].number = Int(table.entries[index].record.id.low & 0xffff) - 1_000_000
        }
      }
    },
  ]

  static let conditions = [
    Mutant("one condition is enough", breaks: "conditions.all") {
      $0.rewriteInsertions { record in
        record.copy(conditions: record.conditions.min().map { [$0] } ?? [])
      }
    },
    Mutant("conditions are case-insensitive", breaks: "conditions.all") {
      $0.rewriteInsertions { record in
        let lowercased = record.conditions.map { TaskCondition(rawValue: $0.rawValue.lowercased()) }
        return record.copy(conditions: Set(lowercased))
      }
    },
    Mutant("a claim of one task hands out none named A", breaks: "conditions.name") {
      $0.editRequests { request in
        if request.limit == 1 { request.names["A"] = 0 }
      }
    },
    Mutant("a replaced task has no conditions", breaks: "conditions.replaced") {
      $0.rewriteInsertions { $0.id.low & 0xff == 2 ? $0.copy(conditions: []) : $0 }
    },
  ]
}
