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
  /// Removes all remembered values.
  mutating func forget() {
    memory = [:]
    record.memorySize = 0
  }

  /// Makes a suspended task wait, and makes it available at once.
  mutating func wake() {
    record.state = .waiting
    record.availableDate = record.createdDate
  }
}

extension ReferenceTable {
  /// Changes the entry of the task with this ID, if the table has such a task.
  mutating func edit(_ id: TaskID, _ change: (inout Entry) -> Void) {
    guard let index = entries.firstIndex(where: { $0.record.id == id }) else { return }
    change(&entries[index])
  }
}

extension PlainStore.Behaviour {
  /// Replaces the bytes of remembered values.
  mutating func replaceRememberedBytes(_ body: @escaping @Sendable ([UInt8]) -> [UInt8]) {
    rewrite = { change in
      guard case .memory(.remember(let lease, let name, let value)) = change else { return change }
      return .remember(lease, named: name, value: body(value))
    }
  }

  /// Runs `body` after a task has remembered a value; `body` also gets the memory that the task had
  /// before.
  mutating func afterRemembering(
    _ body:
      @escaping @Sendable (
        inout ReferenceTable, _ index: Int, ExactText, [ExactText: [UInt8]]
      ) -> Void
  ) {
    afterEachChange { change, before, table in
      guard case .memory(.remember(let lease, let name, _)) = change,
        let index = table.entries.firstIndex(where: { $0.record.id == lease.id })
      else { return }
      body(&table, index, ExactText(name), before.memory(of: lease.id))
    }
  }

  /// Replaces the names of remembered values.
  mutating func replaceRememberedNames(_ body: @escaping @Sendable (String) -> String) {
    rewrite = { change in
      switch change {
      case .memory(.remember(let lease, let name, let value)):
        .remember(lease, named: body(name), value: value)
      case .memory(.complete(let id, let name, let value)):
        .complete(id, named: body(name), value: value)
      default: change
      }
    }
  }

  /// Replaces the size of a task's memory.
  mutating func replaceMemorySizes(_ body: @escaping @Sendable (ReferenceTable.Entry) -> Int) {
    afterEachChange { change, _, table in
      guard let id = change.affectedTask else { return }
      table.edit(id) { $0.record.memorySize = body($0) }
    }
  }

  /// Keeps the memory of a task that is removed by a change that satisfies `isMeant`.
  ///
  /// The next task with the same ID gets that memory.
  mutating func keepMemoriesOfTasksRemoved(by isMeant: @escaping @Sendable (TaskChange) -> Bool) {
    let left = LeftMemories()
    afterEachChange { change, before, table in
      if case .insert(let record, _) = change, let memory = left[record.id] {
        table.edit(record.id) { $0.memory = memory }
      }
      guard isMeant(change) else { return }
      for entry in before.entries where table.record(of: entry.record.id) == nil {
        left[entry.record.id] = entry.memory
      }
    }
  }

  /// Applies each batch with a change that satisfies `isMeant` as if no task remembered anything.
  mutating func hideMemoriesFromBatches(with isMeant: @escaping @Sendable (TaskChange) -> Bool) {
    apply = { batch, table in
      guard batch.contains(where: isMeant) else { return table.apply(batch) }
      let before = table
      for index in table.entries.indices { table.entries[index].memory = [:] }
      let outcomes = table.apply(batch)
      for entry in before.entries { table.edit(entry.record.id) { $0.memory = entry.memory } }
      return outcomes
    }
  }

  /// Runs `body` on the changed task if that task is suspended before or after the change.
  mutating func editSuspendedTask(
    _ body:
      @escaping @Sendable (
        TaskChange, inout ReferenceTable.Entry, _ before: ReferenceTable.Entry
      ) -> Void
  ) {
    editChangedTask { change, entry, before in
      guard let before else { return }
      let states = [before.record.state, entry.record.state]
      var isSuspending = false
      if case .memory(.suspend) = change { isSuspending = true }
      if isSuspending || states.contains(.suspended) { body(change, &entry, before) }
    }
  }

  /// Replaces the names that a suspended task awaits.
  mutating func replaceAwaitedNames(
    _ body: @escaping @Sendable ([String], [ExactText: [UInt8]]) -> [String]
  ) {
    apply = { batch, table in
      table.apply(
        batch.map { change in
          guard case .memory(.suspend(let lease, let date, let names, _)) = change else {
            return change
          }
          let others = body(names, table.memory(of: lease.id))
          return .suspend(lease, until: date, awaiting: others)
        }
      )
    }
  }

  /// Makes the store ignore changes to suspended tasks that satisfy `isMeant`, and report them as
  /// stale.
  mutating func ignoreChangesToSuspended(where isMeant: @escaping @Sendable (TaskChange) -> Bool) {
    apply = { batch, table in
      let isIgnored = batch.map { change in
        isMeant(change) && change.affectedTask.flatMap(table.record)?.state == .suspended
      }
      var others = table.apply(zip(batch, isIgnored).filter { !$0.1 }.map(\.0))[...]
      return isIgnored.map { $0 ? .stale : others.removeFirst() }
    }
  }

  /// Runs `body` on the entry of a task that a new task has replaced; `body` also gets the earlier
  /// entry.
  mutating func editReplacedTask(
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

  /// Applies stale completions after all, if `isOpen` returns `true` for the memory of the task and
  /// the name of the value.
  mutating func applyStaleCompletions(
    where isOpen: @escaping @Sendable ([ExactText: [UInt8]], ExactText) -> Bool
  ) {
    apply = { batch, table in
      zip(batch, table.apply(batch)).map { change, outcome in
        guard outcome == .stale, case .memory(.complete(let id, let name, let value)) = change,
          table.record(of: id) != nil, isOpen(table.memory(of: id), ExactText(name))
        else { return outcome }
        table.edit(id) { $0.memory[ExactText(name)] = value }
        return .done
      }
    }
  }
}
