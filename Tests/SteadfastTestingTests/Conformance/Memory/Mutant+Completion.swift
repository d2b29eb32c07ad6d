import Foundation
import SteadfastTesting

/// Stores that break a rule about completions, or about the memories in reopened and shared stores.
extension Mutant {
  static let completion = [
    Mutant("a completion leaves the available date", breaks: "completion.wakes") {
      $0.editSuspendedTask { change, entry, before in
        if case .memory(.complete) = change {
          entry.record.availableDate = before.record.availableDate
        }
      }
    },
    Mutant("a completion wakes no task", breaks: "completion.wakes") {
      $0.editSuspendedTask { change, entry, _ in
        if case .memory(.complete) = change { entry.record.state = .suspended }
      }
    },
    Mutant("a completed task keeps its position", breaks: "completion.wakes") {
      $0.editSuspendedTask { change, entry, before in
        if case .memory(.complete) = change { entry.place = before.place }
      }
    },
    Mutant("a completion makes a paused task wait", breaks: "completion.others") {
      $0.editChangedTask { change, entry, _ in
        if case .memory(.complete) = change, entry.record.state == .paused {
          entry.record.state = .waiting
        }
      }
    },
    Mutant("a completion makes a waiting task available", breaks: "completion.others") {
      $0.editChangedTask { change, entry, _ in
        guard case .memory(.complete) = change, entry.record.state == .waiting else { return }
        entry.record.availableDate = entry.record.createdDate
      }
    },
    Mutant("a completion moves a waiting task", breaks: "completion.others") {
      $0.editChangedTask { change, entry, _ in
        guard case .memory(.complete) = change, entry.record.retryCount == 2 else { return }
        entry.place += 1_000_000
      }
    },
    Mutant("a later completion overwrites the first", breaks: "completion.first") {
      $0.applyStaleCompletions { memory, name in memory[name] != nil }
    },
    Mutant("a name that is not open is completed", breaks: "completion.first") {
      $0.applyStaleCompletions { memory, name in memory[name]?.isEmpty ?? true }
    },
    Mutant("a task that has ended is completed", breaks: "completion.ended") {
      $0.applyStaleCompletions { memory, name in memory[name]?.isEmpty ?? false }
    },
    Mutant("a completed task no longer waits for its dependencies", breaks: "completion.held") {
      $0.editChangedTask { change, entry, _ in
        if case .memory(.complete) = change { entry.record.dependencies.tasks = [] }
      }
    },
  ]

  static let memoryInStores = [
    Mutant("an empty name of a remembered value is accepted", breaks: "form.memory") {
      $0.overlooks = { $0.message.contains("has 0 bytes of UTF-8") }
    },
    Mutant("a name of a remembered value that is too long is accepted", breaks: "form.memory") {
      $0.overlooks = { $0.message.contains("bytes of UTF-8; give it 1 to") }
    },
    Mutant("a remembered value that is too long is accepted", breaks: "form.memory") {
      $0.overlooks = { $0.message.contains("in a task's memory has") }
    },
    Mutant("a NUL in the name of a remembered value is accepted", breaks: "form.memory") {
      $0.overlooks = { $0.message.contains("a value in a task's memory contains a NUL") }
    },
    Mutant("a NUL in the name of an awaited value is accepted", breaks: "form.memory") {
      $0.overlooks = { $0.message.contains("the name of an awaited value contains a NUL") }
    },
    Mutant("an empty completion is accepted", breaks: "form.memory") {
      $0.overlooks = { $0.message.contains("like a value that is still awaited") }
    },
    Mutant("a destroyed store leaves the memories of its tasks", breaks: "life.memory") {
      let left = LeftMemories()
      $0.afterEachChange { change, _, table in
        switch change {
        case .insert(let record, _):
          guard let memory = left[record.id] else { return }
          table.edit(record.id) { $0.memory = memory }
        case .memory(.remember(let lease, _, _)): left[lease.id] = table.memory(of: lease.id)
        default: break
        }
      }
    },
    Mutant("memories are lost when opened again", breaks: "reopen.memory") {
      $0.reopen = { table in
        table.interrupt()
        for index in table.entries.indices { table.entries[index].memory = [:] }
      }
    },
    Mutant("a paused task's memory is lost when opened again", breaks: "reopen.memory") {
      $0.reopen = { table in
        table.interrupt()
        for index in table.entries.indices where table.entries[index].record.state == .paused {
          table.entries[index].forget()
        }
      }
    },
    Mutant("suspended tasks wake when opened again", breaks: "reopen.suspended") {
      $0.reopen = { table in
        table.interrupt()
        for index in table.entries.indices where table.entries[index].record.state == .suspended {
          table.entries[index].wake()
        }
      }
    },
    Mutant("memories are lost when another opens", breaks: "sharing.memory", isShared: true) {
      $0.reopen = { table in
        for index in table.entries.indices { table.entries[index].memory = [:] }
      }
      $0.opensAnew = true
    },
    Mutant("a suspended task's lease expires", breaks: "sharing.suspended", isShared: true) {
      $0.editSuspendedTask { change, entry, before in
        guard case .memory(.suspend) = change else { return }
        (entry.lease, entry.leaseEnd) = (before.lease, before.leaseEnd)
      }
    },
    Mutant("two changes both read before either remembers", breaks: "concurrency.memory") {
      $0.racesInApply = true
    },
    Mutant("two completions succeed", breaks: "concurrency.completions") { $0.racesInApply = true },
  ]
}
