import Foundation
import SteadfastTesting

/// Stores that break a rule about what tasks remember and forget.
extension Mutant {
  static let memory = [
    Mutant("a remembered value is truncated at 1,000 bytes", breaks: "memory.kept") {
      $0.replaceRememberedBytes { Array($0.prefix(1_000)) }
    },
    Mutant("a remembered value is truncated at 64 KiB", breaks: "memory.kept") {
      $0.replaceRememberedBytes { Array($0.prefix(65_536)) }
    },
    Mutant("a remembered value is stored as text", breaks: "memory.kept") {
      $0.replaceRememberedBytes { Array(String(decoding: $0, as: UTF8.self).utf8) }
    },
    Mutant("the first value under a name stays", breaks: "memory.kept") {
      $0.afterRemembering { table, index, name, before in
        guard let old = before[name] else { return }
        table.entries[index].memory[name] = old
      }
    },
    Mutant("a shorter value overwrites only part of a longer one", breaks: "memory.kept") {
      $0.afterRemembering { table, index, name, before in
        guard let old = before[name], let new = table.entries[index].memory[name] else { return }
        table.entries[index].memory[name] = new + old.dropFirst(new.count)
      }
    },
    Mutant("names of remembered values are truncated", breaks: "memory.kept") {
      $0.replaceRememberedNames { String($0.prefix(255)) }
    },
    Mutant("names of remembered values are normalised", breaks: "memory.names") {
      $0.replaceRememberedNames { $0.precomposedStringWithCanonicalMapping }
    },
    Mutant("names of remembered values are case-insensitive", breaks: "memory.names") {
      $0.replaceRememberedNames { $0.lowercased() }
    },
    Mutant("all tasks share one memory", breaks: "memory.apart") {
      $0.memory = { _, table in
        var memory = TaskMemory()
        for entry in table.entries {
          for (name, value) in entry.memory { memory[name.text] = value }
        }
        return memory
      }
    },
    Mutant("a remembered value is also a value of the store", breaks: "memory.apart") {
      $0.afterRemembering { table, _, name, _ in table.values[name] = [1] }
    },
    Mutant("a stale lease can still remember", breaks: "memory.lease") {
      $0.apply = { batch, table in
        table.apply(
          batch.map { change in
            guard case .memory(.remember) = change else { return change }
            let leases = table.entries.map { ($0.record.id, $0.lease) }
            return change.replacingLease { old in leases.first { $0.0 == old.id }?.1 ?? old }
          }
        )
      }
    },
    Mutant("only the last name of a batch is remembered", breaks: "memory.batch") {
      $0.apply = { batch, table in
        let outcomes = table.apply(batch)
        var names: [TaskID: ExactText] = [:]
        for case .memory(.remember(let lease, let name, _)) in batch {
          if let earlier = names.updateValue(ExactText(name), forKey: lease.id) {
            table.edit(lease.id) { $0.memory[earlier] = nil }
          }
        }
        return outcomes
      }
    },
    Mutant("a batch with a stale change remembers nothing", breaks: "memory.batch") {
      $0.apply = { batch, table in
        let before = table
        let outcomes = table.apply(batch)
        if batch.count > 1, outcomes.contains(.stale) { table = before }
        return outcomes
      }
    },
    Mutant("a rejected batch remembers its values", breaks: "memory.refused") {
      $0.apply = { batch, table in
        let outcomes = table.apply(batch)
        guard outcomes.contains(.batchRefused) else { return outcomes }
        for case .memory(.remember(let lease, let name, let value)) in batch {
          table.edit(lease.id) { $0.memory[ExactText(name)] = value }
        }
        return outcomes
      }
    },
    Mutant("a differing value does not reject completions", breaks: "memory.refused") {
      $0.apply = { batch, table in
        let outcomes = table.apply(batch)
        guard outcomes.contains(.valueDiffers) else { return outcomes }
        for case .memory(.complete(let id, let name, let value)) in batch {
          table.edit(id) { $0.memory[ExactText(name)] = value }
        }
        return outcomes
      }
    },
    Mutant("the size of a memory excludes names", breaks: "memory.size") {
      $0.replaceMemorySizes { entry in entry.memory.values.reduce(0) { $0 + $1.count } }
    },
    Mutant("the size of a memory counts the characters of names", breaks: "memory.size") {
      $0.replaceMemorySizes { entry in
        entry.memory.reduce(0) { $0 + $1.key.text.count + $1.value.count }
      }
    },
    Mutant("the size of a memory excludes completions", breaks: "memory.size") {
      $0.editChangedTask { change, entry, before in
        guard case .memory(.complete) = change, let before else { return }
        entry.record.memorySize = before.record.memorySize
      }
    },
    Mutant("a claim does not report the size of a memory", breaks: "memory.size") {
      $0.editShownRecords { record in
        if record.state == .running { record.memorySize = 0 }
      }
    },
    Mutant("filters ignore whether tasks remember anything", breaks: "memory.size") {
      $0.editFilters { $0.remembers = nil }
    },
    Mutant("a new task has the memory size of its record", breaks: "memory.size") {
      $0.afterEachChange { change, _, table in
        guard case .insert(let record, _) = change else { return }
        table.edit(record.id) { $0.record.memorySize = record.memorySize }
      }
    },
    Mutant("remembering does not reset the interruptions", breaks: "reopen.interruptions") {
      $0.editChangedTask { change, entry, before in
        guard case .memory(.remember) = change, let before else { return }
        entry.record.interruptionCount = before.record.interruptionCount
      }
    },
    Mutant("an interrupted task's memory is cleared", breaks: "reopen.interruptions") {
      $0.reopen = { table in
        for index in table.entries.indices where table.entries[index].lease != nil {
          table.entries[index].forget()
        }
        table.interrupt()
      }
    },
  ]

  static let forgetting = [
    Mutant("a task that succeeded keeps its memory", breaks: "memory.succeeded") {
      $0.editChangedTask { change, entry, before in
        guard change.end?.state == .succeeded, let before else { return }
        entry.memory = before.memory
        entry.record.memorySize = before.record.memorySize
      }
    },
    Mutant("a success clears the size, but not the memory", breaks: "memory.succeeded") {
      $0.editChangedTask { change, entry, before in
        guard change.end?.state == .succeeded, let before else { return }
        entry.memory = before.memory
      }
    },
    Mutant("abandoning clears the memory", breaks: "memory.stays") {
      $0.editChangedTask { change, entry, _ in if change.end?.state == .abandoned { entry.forget() }
      }
    },
    Mutant("cancelling clears the memory", breaks: "memory.stays") {
      $0.editChangedTask { change, entry, _ in if change.end?.state == .cancelled { entry.forget() }
      }
    },
    Mutant("a retry clears the memory", breaks: "memory.stays") {
      $0.editChangedTask { change, entry, _ in if change.move?.kind == .retry { entry.forget() } }
    },
    Mutant("an update clears the memory", breaks: "memory.stays") {
      $0.editChangedTask { change, entry, _ in if case .update = change { entry.forget() } }
    },
    Mutant("pausing clears the memory", breaks: "memory.stays") {
      $0.editChangedTask { change, entry, _ in if change.move?.kind == .pause { entry.forget() } }
    },
    Mutant("removing a task leaves its memory", breaks: "memory.removed") {
      $0.keepMemoriesOfTasksRemoved { if case .remove = $0 { true } else { false } }
    },
    Mutant("pruning leaves memories", breaks: "memory.removed") {
      $0.keepMemoriesOfTasksRemoved { if case .broad(.prune) = $0 { true } else { false } }
    },
    Mutant("abandoning a task that is not retained leaves its memory", breaks: "memory.removed") {
      $0.keepMemoriesOfTasksRemoved {
        if case .end(_, let end) = $0, end.state == .abandoned, !end.retains { true } else { false }
      }
    },
    Mutant("each restart clears the memory", breaks: "memory.restarted") {
      $0.editChangedTask { change, entry, _ in if change.move?.kind == .restart { entry.forget() } }
    },
    Mutant("no restart clears the memory", breaks: "memory.restarted") {
      $0.rewrite = { change in
        guard case .move(let target, let move) = change, move.kind == .restart,
          let date = move.availableDate
        else { return change }
        return .restart(target, availableDate: date)
      }
    },
    Mutant("restarting an ended task does not clear the memory", breaks: "memory.restarted") {
      $0.editChangedTask { change, entry, before in
        guard case .move(_, let move) = change, move.kind == .restart, move.forgetsMemory,
          let before, before.record.state.isFinished
        else {
          return
        }
        entry.memory = before.memory
        entry.record.memorySize = before.record.memorySize
      }
    },
    Mutant("a restart without effect clears the memory", breaks: "memory.restarted") {
      $0.apply = { batch, table in
        let outcomes = table.apply(batch)
        for case .move(let target, let move) in batch where move.forgetsMemory {
          table.edit(target.id) { $0.forget() }
        }
        return outcomes
      }
    },
    Mutant("a cascaded restart clears the memory", breaks: "memory.along") {
      $0.afterEachChange { change, before, table in
        guard case .move(let target, let move) = change, move.kind == .restart else { return }
        for index in table.entries.indices {
          let record = table.entries[index].record
          let was = before.record(of: record.id)?.state
          guard record.id != target.id, was == .cancelled, record.state == .waiting else {
            continue
          }
          table.entries[index].forget()
        }
      }
    },
    Mutant("a cascaded cancellation clears the memory", breaks: "memory.along") {
      $0.afterEachChange { change, _, table in
        guard change.end?.state == .abandoned else { return }
        for index in table.entries.indices
        where table.entries[index].record.dependencies.cause != nil {
          table.entries[index].forget()
        }
      }
    },
    Mutant("a holder with a memory is superseded", breaks: "unique.remembers") {
      $0.hideMemoriesFromBatches { $0.move?.kind == .retry }
    },
    Mutant("a holder with a memory is replaced", breaks: "unique.remembers") {
      $0.hideMemoriesFromBatches { if case .insert = $0 { true } else { false } }
    },
  ]
}
