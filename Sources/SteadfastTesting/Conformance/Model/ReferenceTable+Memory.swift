import SteadfastQueue

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// What tasks remember in the reference, and how they are suspended.
extension ReferenceTable {
  /// What a task remembers, by the bytes of the names.
  package func memory(of id: TaskID) -> [ExactText: [UInt8]] {
    index(id).map { entries[$0].memory } ?? [:]
  }

  mutating func remember(_ lease: Lease, _ name: String, _ value: [UInt8]) -> ChangeOutcome {
    guard let index = index(lease.id), entries[index].lease == lease else { return .stale }
    set(value, name, index)
    entries[index].record.interruptionCount = 0
    return .done
  }

  private mutating func set(_ value: [UInt8], _ name: String, _ index: Int) {
    entries[index].memory[ExactText(name)] = value
    entries[index].record.memorySize = entries[index].memory.reduce(0) { size, item in
      size + item.key.text.utf8.count + item.value.count
    }
  }

  mutating func forget(_ id: TaskID) {
    guard let index = index(id) else { return }
    entries[index].memory = [:]
    entries[index].record.memorySize = 0
  }

  mutating func suspend(
    _ lease: Lease,
    until date: Date,
    awaiting names: [String],
    countedFrom origin: Date?
  ) -> ChangeOutcome {
    let memory = memory(of: lease.id)
    let outcome = change(lease, to: .suspended) { record in
      record.availableDate = date
      record.countedFrom = origin
      record.interruptionCount = 0
      record.isPostponed = false
    }
    let hasCome = names.contains { !(memory[ExactText($0)] ?? []).isEmpty }
    if outcome == .done, hasCome { wake(lease.id) }
    return outcome
  }

  mutating func complete(_ id: TaskID, _ name: String, _ value: [UInt8]) -> ChangeOutcome {
    guard let index = index(id), !entries[index].record.state.isFinished,
      entries[index].memory[ExactText(name)] == []
    else { return .stale }
    set(value, name, index)
    if entries[index].record.state == .suspended {
      wake(id)
      entries[index].place = nextPlace()
    }
    return .done
  }

  mutating func wake(_ id: TaskID) {
    guard let index = index(id) else { return }
    wake(&entries[index].record)
  }

  /// Makes a suspended task wait, from the date on which it was enqueued.
  func wake(_ record: inout TaskRecord) {
    record.state = .waiting
    record.availableDate = record.createdDate
    record.countedFrom = record.createdDate
    record.isPostponed = false
  }
}
