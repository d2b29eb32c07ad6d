import Foundation
import SteadfastTesting
import Synchronization

/// The memories of removed tasks.
final class LeftMemories: Sendable {
  private let memories = Mutex<[TaskID: [ExactText: [UInt8]]]>([:])

  subscript(id: TaskID) -> [ExactText: [UInt8]]? {
    get { memories.withLock { $0[id] } }
    set { memories.withLock { $0[id] = newValue } }
  }
}

extension ReferenceTable.Entry {
  mutating func forget() {
    memory = [:]
    record.memorySize = 0
  }

  mutating func wake() {
    record.state = .waiting
    record.availableDate = record.createdDate
  }
}

extension ReferenceTable {
  /// Changes the entry of a task, if there is one.
  mutating func edit(_ id: TaskID, _ change: (inout Entry) -> Void) {
    guard let index = entries.firstIndex(where: { $0.record.id == id }) else { return }
    change(&entries[index])
  }
}

extension PlainStore.Behaviour {
  /// Replaces the bytes of remembered values.
  mutating func remembering(_ body: @escaping @Sendable ([UInt8]) -> [UInt8]) {
    rewrite = { change in
      guard case .remember(let lease, let name, let value) = change else { return change }
      return .remember(lease, named: name, value: body(value))
    }
  }

  /// Runs `body` when a task remembers a value, with the task's memory before that.
  mutating func afterRemembering(
    _ body:
      @escaping @Sendable (
        inout ReferenceTable, _ index: Int, ExactText, [ExactText: [UInt8]]
      ) -> Void
  ) {
    after { change, before, table in
      guard case .remember(let lease, let name, _) = change,
        let index = table.entries.firstIndex(where: { $0.record.id == lease.id })
      else { return }
      body(&table, index, ExactText(name), before.memory(of: lease.id))
    }
  }

  /// Replaces the names of remembered values.
  mutating func namingMemory(_ body: @escaping @Sendable (String) -> String) {
    rewrite = { change in
      switch change {
      case .remember(let lease, let name, let value):
        .remember(lease, named: body(name), value: value)
      case .complete(let id, let name, let value):
        .complete(id, named: body(name), value: value)
      default: change
      }
    }
  }

  /// Replaces the size of a task's memory.
  mutating func sizes(_ body: @escaping @Sendable (ReferenceTable.Entry) -> Int) {
    after { change, _, table in
      guard let id = change.taskID else { return }
      table.edit(id) { $0.record.memorySize = body($0) }
    }
  }

  /// Keeps the memory of a task that a change removes, and gives it to the next task with its ID.
  mutating func leaving(_ isMeant: @escaping @Sendable (TaskChange) -> Bool) {
    let left = LeftMemories()
    after { change, before, table in
      if case .insert(let record, _) = change, let memory = left[record.id] {
        table.edit(record.id) { $0.memory = memory }
      }
      guard isMeant(change) else { return }
      for entry in before.entries where table.record(of: entry.record.id) == nil {
        left[entry.record.id] = entry.memory
      }
    }
  }

  /// Applies the batches that contain such a change as if no task remembered anything.
  mutating func withoutMemory(_ isMeant: @escaping @Sendable (TaskChange) -> Bool) {
    apply = { batch, table in
      guard batch.contains(where: isMeant) else { return table.apply(batch) }
      let before = table
      for index in table.entries.indices { table.entries[index].memory = [:] }
      let outcomes = table.apply(batch)
      for entry in before.entries { table.edit(entry.record.id) { $0.memory = entry.memory } }
      return outcomes
    }
  }

  /// Runs `body` on the changed task if it is suspended, or was suspended before the change.
  mutating func afterSuspending(
    _ body:
      @escaping @Sendable (
        TaskChange, inout ReferenceTable.Entry, _ before: ReferenceTable.Entry
      ) -> Void
  ) {
    afterwards { change, entry, before in
      guard let before else { return }
      let states = [before.record.state, entry.record.state]
      var isSuspending = false
      if case .suspend = change { isSuspending = true }
      if isSuspending || states.contains(.suspended) { body(change, &entry, before) }
    }
  }

  /// Replaces the names that a suspended task awaits.
  mutating func awaiting(
    _ body: @escaping @Sendable ([String], [ExactText: [UInt8]]) -> [String]
  ) {
    apply = { batch, table in
      table.apply(
        batch.map { change in
          guard case .suspend(let lease, let date, let names, _) = change else { return change }
          let others = body(names, table.memory(of: lease.id))
          return .suspend(lease, until: date, awaiting: others)
        }
      )
    }
  }

  /// Reports some changes to suspended tasks as stale.
  mutating func ignoringSuspended(_ isMeant: @escaping @Sendable (TaskChange) -> Bool) {
    apply = { batch, table in
      let isIgnored = batch.map { change in
        isMeant(change) && change.taskID.flatMap(table.record)?.state == .suspended
      }
      var others = table.apply(zip(batch, isIgnored).filter { !$0.1 }.map(\.0))[...]
      return isIgnored.map { $0 ? .stale : others.removeFirst() }
    }
  }

  /// Runs `body` on a task that a new one has replaced.
  mutating func replacing(
    _ body:
      @escaping @Sendable (inout ReferenceTable.Entry, _ before: ReferenceTable.Entry) -> Void
  ) {
    apply = { batch, table in
      let before = table
      let outcomes = table.apply(batch)
      for case .replaced(let id) in outcomes {
        guard let old = before.entries.first(where: { $0.record.id == id }) else { continue }
        table.edit(id) { body(&$0, old) }
      }
      return outcomes
    }
  }

  /// Applies stale completions after all, if `isOpen` returns `true` for the memory and the name.
  mutating func completing(
    _ isOpen: @escaping @Sendable ([ExactText: [UInt8]], ExactText) -> Bool
  ) {
    apply = { batch, table in
      zip(batch, table.apply(batch)).map { change, outcome in
        guard outcome == .stale, case .complete(let id, let name, let value) = change,
          table.record(of: id) != nil, isOpen(table.memory(of: id), ExactText(name))
        else { return outcome }
        table.edit(id) { $0.memory[ExactText(name)] = value }
        return .done
      }
    }
  }
}
