import Foundation

@testable import SteadfastQueue

extension TaskTable {
  /// Checks that what tasks remember is counted, and that no task that has left remembers anything.
  func brokenMemories() -> [String] {
    var broken: [String] = []
    var count = 0
    for slot in 0..<entries.slab.endSlot {
      let memory = memories[slot]
      count += memory.names.count
      if entries[slot].place == .staged {
        if !memory.isEmpty { broken.append("the empty slot \(slot) remembers nothing") }
      } else if entries[slot].remembers == memory.isEmpty {
        broken.append("\(entries[slot].id) knows whether it remembers something")
      }
    }
    if count != memoryCount { broken.append("what tasks remember is counted") }
    if !stagedMemories.isEmpty { broken.append("nothing to remember is staged") }
    return broken
  }

  /// What tasks remember, as the lines of a file would say it.
  func memoryListing() throws -> [String] {
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
  /// Whether a date makes the task available, if no other task is in its way.
  var isDueOnDate: Bool {
    record.state == .waiting || record.state == .suspended && record.hasDueDate
  }
}
