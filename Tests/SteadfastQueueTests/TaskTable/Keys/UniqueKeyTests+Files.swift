import Foundation
import Testing

@testable import SteadfastQueue

/// Tests the unique keys of tasks that are read from a file.
extension UniqueKeyTests {
  /// Returns the table that is read from a file with these lines.
  func read(_ entries: [JournalEntry]) throws -> TaskTable {
    var text = try JournalText()
    for entry in entries { try text.add(entry) }
    return try JournalReader.readAsWritten(JournalSource(text.bytes)).table
  }

  @Test
  func `a compacted file restores which task holds a key, whatever the order of its lines`() throws
  {
    var table = TaskTable()
    table.insert(.make(1, key: "k"))
    _ = table.claim(1)
    table.insert(.make(2, key: "k"))
    for order in [[0, 1], [1, 0]] {
      let entries = [1, 2].map { number in
        let record = table.record(of: .numbered(number))!
        var waiting = record
        waiting.state = .waiting
        return JournalEntry.task(
          KeptTask(record: waiting, position: UInt64(number), hasLostKey: false)
        )
      }
      let found = try read(order.map { entries[$0] } + [.begin(.numbered(1))])
      #expect(found.record(of: .numbered(2))?.keyRole == .successor)
      #expect(found.brokenInvariants() == [])
    }
    // A successor without a holder becomes the holder.
    let alone = JournalEntry.task(
      KeptTask(record: table.record(of: .numbered(2))!, position: 1, hasLostKey: false)
    )
    var found = try read([alone])
    #expect(found.brokenInvariants() == [])
    #expect(found.claim(1).numbers == [2])
  }

  @Test func `files of earlier versions are read with their original meaning`() throws {
    // In earlier versions, a finished task kept its key, and blocked tasks of every name.
    let replacing = TaskChange.insert(.make(3, key: "k"), onDuplicate: .replace)
    var found = TaskTable()
    for entry: JournalEntry in [
      .change(.insert(.make(1, key: "k"), onDuplicate: .keep)), .begin(.numbered(1)),
      .change(.insert(.make(2, name: "Other", key: "k"), onDuplicate: .replace)),
      .change(.cancel(.unclaimed(.numbered(2)), at: .seconds(1), retains: true)),
      .change(replacing), .change(.release(Lease(id: .numbered(1), token: 0))),
    ] {
      #expect(found.replay(entry) == true)
    }
    #expect(found.replay(.change(.insert(.make(4, key: "k"), onDuplicate: .keep))) == false)
    #expect(found.numbers == [1, 3])
    #expect(found.record(of: .numbered(3))?.keyRole == .holder)
    #expect(found.record(of: .numbered(1))?.keyRole == nil)
    #expect(found.brokenInvariants() == [])
  }
}
