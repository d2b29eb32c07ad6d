import Foundation
import SteadfastTesting

/// Stores that break a rule of order keys or of conditions.
extension Mutant {
  static let orderKeys = [
    Mutant("tasks with an order key run side by side", breaks: "order-key.one") {
      $0.insertions { $0.copy(orderKey: .some(nil)) }
    },
    Mutant("each name has an order of its own", breaks: "order-key.one") {
      $0.insertions { record in
        record.copy(orderKey: .some(record.orderKey.map { "\(record.name) \($0)" }))
      }
    },
    Mutant("the higher priority goes first", breaks: "order-key.one") {
      $0.after { _, _, table in
        for index in table.entries.indices {
          let entry = table.entries[index]
          table.entries[index].number =
            entry.number - max(-5, min(5, entry.record.priority.rawValue)) * 1_000
        }
      }
    },
    Mutant("a task that is retried lets the next one pass", breaks: "order-key.held-up") {
      $0.afterwards { change, entry, _ in
        if case .retry = change { entry.number = entry.place }
      }
    },
    Mutant("a task that is paused lets the next one pass", breaks: "order-key.held-up") {
      $0.afterwards { change, entry, _ in
        if case .pause = change { entry.number = entry.place }
      }
    },
    Mutant("an abandoned task keeps the next one waiting", breaks: "order-key.ended") {
      $0.afterwards { change, entry, _ in
        if case .abandon = change { entry.record = entry.record.copy(blocksOrderOnFailure: true) }
      }
    },
    Mutant("a restarted task is the last one", breaks: "order-key.restart") {
      $0.afterwards { change, entry, _ in
        if case .restart = change { entry.number = entry.place }
      }
    },
    Mutant("no task holds its order", breaks: "order-key.holds") {
      $0.insertions { $0.copy(blocksOrderOnFailure: false) }
    },
    Mutant("a task that holds its order is pruned", breaks: "order-key.holds") {
      $0.after { change, _, table in
        guard case .prune(let state, _, _, _, _) = change else { return }
        table.entries.removeAll { $0.record.state == state && $0.record.holdsUpOthers }
      }
    },
    Mutant("the order is that of identities when opened again", breaks: "reopen.order-keys") {
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
      $0.insertions { record in
        record.copy(conditions: record.conditions.min().map { [$0] } ?? [])
      }
    },
    Mutant("conditions are the same in either case", breaks: "conditions.all") {
      $0.insertions { record in
        let lowercased = record.conditions.map { TaskCondition(rawValue: $0.rawValue.lowercased()) }
        return record.copy(conditions: Set(lowercased))
      }
    },
    Mutant("what a claim names always holds", breaks: "conditions.name") {
      $0.request = { request in
        var request = request
        if request.limit == 1 { request.names["A"] = 0 }
        return request
      }
    },
    Mutant("what is taken over requires nothing", breaks: "conditions.replaced") {
      $0.insertions { $0.id.low & 0xff == 2 ? $0.copy(conditions: []) : $0 }
    },
  ]
}
