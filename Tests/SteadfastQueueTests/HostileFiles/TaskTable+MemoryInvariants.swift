import Foundation

@testable import SteadfastQueue

extension TaskTable {
  /// Checks that all memory of tasks is counted, and that removed tasks have no memory.
  func brokenMemoryInvariants() -> [String] {
    var broken: [String] = []
    var count = 0
    for slot in 0..<entries.slab.endSlot {
      let memory = memories[slot]
      count += memory.names.count
      if entries[slot].place == .staged {
        if !memory.isEmpty { broken.append("the empty slot \(slot) has no memory") }
      } else if entries[slot].remembers == memory.isEmpty {
        broken.append("\(entries[slot].id) is marked if and only if it has memory")
      }
    }
    if count != memoryCount { broken.append("the memory of tasks is counted") }
    if !stagedMemories.isEmpty { broken.append("no memory is staged") }
    return broken
  }

  /// The lines of a file that contain the memory of tasks.
  func memoryLines() throws -> [String] {
    try entries.slots.flatMap { slot in
      let (id, memory) = (entries[slot].id, memories[slot])
      return try memory.names.map { name in
        let line = try JournalBody(.memory(id, named: name, memory[name] ?? []))
        return String(decoding: line.bytes, as: UTF8.self)
      }
    }.sorted()
  }
}

extension TaskTable.Entry {
  /// Whether the task becomes available at a date, unless another task blocks it.
  var isDueOnDate: Bool {
    record.state == .waiting || record.state == .suspended && record.hasDueDate
  }
}
