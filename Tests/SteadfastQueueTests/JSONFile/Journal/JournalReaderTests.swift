import Foundation
import TestSupport
import Testing

@testable import SteadfastQueue

/// A file of three batches of two tasks each, flushed one after the other.
///
/// Unless `areMarked`, the lines lack the marks that make a batch atomic, as in the first version
/// of the format.
private func threeBatches(
  areMarked: Bool = false
) throws -> (bytes: [UInt8], ends: [Int]) {
  let storage = MemoryStorage()
  var journal = try Journal.open(storage).journal
  var ends = [storage.bytes.count]
  for batch in 0..<3 {
    let lines = try (1...2).map { number in
      try JournalBody(.change(.insert(.make(batch * 2 + number), onDuplicate: .keep)))
    }
    try journal.append(areMarked ? [lines] : lines.map { [$0] })
    try journal.synchronize()
    ends.append(storage.bytes.count)
  }
  return (storage.bytes, ends)
}

private func line(
  _ entry: JournalEntry,
  sequence: UInt64,
  firstUnsynced: UInt64,
  isContinued: Bool = false
) throws -> [UInt8] {
  var bytes: [UInt8] = []
  JournalLine.append(
    try JournalBody(entry),
    sequence: sequence,
    firstUnsynced: firstUnsynced,
    isContinued: isContinued,
    to: &bytes
  )
  return bytes
}

private func taskNumbers(in contents: JournalContents) -> [Int] {
  contents.table.tasks(matching: TaskFilter(), after: nil, limit: .max).map { Int($0.id.low) }
}

@Suite struct JournalReaderTests {
  @Test func `an undamaged file is read completely`() throws {
    let (bytes, ends) = try threeBatches()
    let contents = try JournalReader.read(bytes)
    #expect(taskNumbers(in: contents) == [1, 2, 3, 4, 5, 6])
    #expect(contents.goodSize == bytes.count)
    #expect(contents.nextSequence == 7)
    #expect(contents.unsyncedOffset == ends[2])
  }

  @Test func `a file cut anywhere contains every line before the cut, and no partial line`() throws
  {
    let (bytes, ends) = try threeBatches()
    for size in ends[0]...bytes.count {
      let contents = try JournalReader.read(Array(bytes[..<size]))
      let found = taskNumbers(in: contents)
      let whole = bytes[..<size].count { $0 == 0x0A } - 1
      #expect(found == Array(1...6).prefix(whole) + [], "cut at \(size)")
      #expect(contents.goodSize <= size)
    }
  }

  @Test func `a file cut anywhere contains whole batches, and nothing of the torn batch`() throws {
    let (bytes, ends) = try threeBatches(areMarked: true)
    for size in ends[0]...bytes.count {
      let contents = try JournalReader.read(Array(bytes[..<size]))
      let whole = ends.lastIndex { $0 <= size } ?? 0
      #expect(taskNumbers(in: contents) == Array((1...6).prefix(2 * whole)), "cut at \(size)")
      #expect(contents.goodSize == ends[whole], "cut at \(size)")
      #expect(contents.nextSequence == UInt64(1 + 2 * whole), "cut at \(size)")
    }
  }

  @Test func `a batch without an end in the middle of a file is damage`() throws {
    var bytes = try line(.header(version: 1, generation: 1), sequence: 0, firstUnsynced: 0)
    bytes += try line(
      .change(.insert(.make(1), onDuplicate: .keep)),
      sequence: 1,
      firstUnsynced: 1,
      isContinued: true
    )
    let start = bytes.count
    bytes += try line(
      .change(.insert(.make(2), onDuplicate: .keep)),
      sequence: 2,
      firstUnsynced: 2
    )
    #expect(
      throws: JournalProblem.damaged(
        line: 3,
        byte: start,
        reason: "the batch before it has no end"
      )
    ) { try JournalReader.read(bytes) }
  }

  @Test func `a bad line in a batch that was stored is damage`() throws {
    let (bytes, ends) = try threeBatches(areMarked: true)
    for offset in ends[0]..<ends[2] {
      var damaged = bytes
      damaged[offset] ^= 1
      #expect(throws: JournalProblem.self) { try JournalReader.read(damaged) }
    }
  }

  @Test func `a line that marks itself as already durable is damage`() throws {
    var bytes = try line(.header(version: 1, generation: 1), sequence: 0, firstUnsynced: 0)
    bytes += try line(.seal, sequence: 1, firstUnsynced: 2)
    #expect(throws: JournalProblem.self) { try JournalReader.read(bytes) }
  }

  @Test func `a file cut in its header isn't mistaken for a new file`() throws {
    let (bytes, ends) = try threeBatches()
    for size in 1..<ends[0] {
      #expect(throws: JournalProblem.notAJournal) {
        try JournalReader.read(Array(bytes[..<size]))
      }
    }
  }

  @Test func `a flipped bit is found, unless it is in the last batch, which may be lost`()
    throws
  {
    let (bytes, ends) = try threeBatches()
    for offset in bytes.indices {
      // A normal run flips one bit of each byte. A long run flips all bits, one at a time.
      for bit in Soak.runs(short: 0) > 0 ? Array(0..<8) : [offset % 8] {
        var flipped = bytes
        flipped[offset] ^= 1 << UInt8(bit)
        do {
          let found = taskNumbers(in: try JournalReader.read(flipped))
          #expect(offset >= ends[2], "byte \(offset), bit \(bit) was not found")
          #expect(found == [1, 2, 3, 4] || found == [1, 2, 3, 4, 5])
        } catch {
          #expect(offset < ends[2], "byte \(offset), bit \(bit) is in the last batch")
        }
      }
    }
  }

  @Test func `the error for damage names the line and the byte`() throws {
    let (bytes, ends) = try threeBatches()
    var damaged = bytes
    damaged[ends[1] + 40] ^= 1
    #expect {
      try JournalReader.read(damaged)
    } throws: { error in
      guard case .damaged(line: 4, byte: ends[1], _)? = error as? JournalProblem else {
        return false
      }
      return true
    }
  }

  @Test func `a file with a line dropped, doubled or swapped is damaged`() throws {
    let (bytes, _) = try threeBatches()
    let lines = bytes.split(separator: 0x0A).map { Array($0) + [0x0A] }
    for index in 1..<lines.count - 1 {
      var dropped = lines
      dropped.remove(at: index)
      var doubled = lines
      doubled.insert(lines[index], at: index)
      var swapped = lines
      swapped.swapAt(index, index + 1)
      for changed in [dropped, doubled, swapped] {
        #expect(throws: JournalProblem.self) { try JournalReader.read(changed.flatMap { $0 }) }
      }
    }
  }

  @Test func `a good line after an unflushed damaged line is cut off too`() throws {
    let (bytes, ends) = try threeBatches()
    // Two batches were being written during a power cut, and only the later one reached the disk.
    var torn = bytes
    for _ in 0..<10 { torn.append(0) }
    torn.append(0x0A)
    torn += try line(
      .change(.insert(.make(8), onDuplicate: .keep)),
      sequence: 8,
      firstUnsynced: 7
    )
    let contents = try JournalReader.read(torn)
    #expect(taskNumbers(in: contents) == [1, 2, 3, 4, 5, 6])
    #expect(contents.goodSize == ends[3])
  }

  @Test func `a sealed file with a damaged last batch is refused`() throws {
    let (bytes, ends) = try threeBatches()
    var sealed = bytes + (try line(.seal, sequence: 7, firstUnsynced: 7))
    sealed[ends[2] + 30] ^= 1
    #expect(throws: JournalProblem.self) { try JournalReader.read(sealed) }
  }

  @Test func `the error for a newer version or an unknown kind names the version or the kind`()
    throws
  {
    let newer = try line(.header(version: 2, generation: 1), sequence: 0, firstUnsynced: 0)
    #expect(throws: JournalProblem.newerVersion(2)) { try JournalReader.read(newer) }

    var unknown = try line(.header(version: 1, generation: 1), sequence: 0, firstUnsynced: 0)
    unknown += try JournalLine.text(#""k":"teleport","id":"x"}"#, sequence: 1)
    #expect(throws: JournalProblem.unknownKind("teleport", line: 2)) {
      try JournalReader.read(unknown)
    }
  }

  @Test(arguments: [
    "hello", "{}", "[1,2]\n", "\u{FEFF}{\"c\":\"00000000\"}\n", "\n", "\0\0\0\0\n",
  ])
  func `a file of another format is refused`(text: String) {
    #expect(throws: JournalProblem.notAJournal) { try JournalReader.read(Array(text.utf8)) }
  }

  @Test(arguments: [
    #""k":"begin","id":"00000000-0000-0009-0000-000000000009"}"#,
    #""k":"succeed","id":"00000000-0000-0001-0000-000000000001","at":1}"#,
    #""k":"begin","id":"nonsense"}"#,
    #""k":"begin"}"#,
    #""k":"begin","id":"00000000-0000-0001-0000-000000000001""#,
    #""k":"unpark","name":"A","name":"B"}"#,
    #""k":"unpark","name":1}"#,
    #""k":"prune","state":"succeeded","latest":-1}"#,
    #""k":"rebase"}"#,
    #""k":"rebase","at":"yesterday"}"#,
    #""k":"header","format":"steadfast-queue","version":1,"generation":1}"#,
    #""k":5}"#, "",
  ])
  func `a malformed line with a correct checksum is damage`(body: String) throws {
    var bytes = try line(.header(version: 1, generation: 1), sequence: 0, firstUnsynced: 0)
    bytes += try line(
      .change(.insert(.make(1), onDuplicate: .keep)),
      sequence: 1,
      firstUnsynced: 1
    )
    bytes += try JournalLine.text(body, sequence: 2)
    #expect {
      try JournalReader.read(bytes)
    } throws: { error in
      guard case .damaged(line: 3, _, _)? = error as? JournalProblem else { return false }
      return true
    }
  }

  @Test func `an interrupted task is available again, and counts its interruptions`() throws {
    var bytes = try line(.header(version: 1, generation: 1), sequence: 0, firstUnsynced: 0)
    bytes += try line(
      .change(.insert(.make(1), onDuplicate: .keep)),
      sequence: 1,
      firstUnsynced: 1
    )
    for sequence in 2...4 as ClosedRange<UInt64> {
      bytes += try line(.begin(.numbered(1)), sequence: sequence, firstUnsynced: 2)
    }
    var contents = try JournalReader.read(bytes)
    let claimed = contents.table.claim(1)
    #expect(claimed.numbers == [1])
    #expect(claimed.first?.record.interruptionCount == 3)
  }
}

extension JournalLine {
  /// A line with the given body and a correct checksum.
  fileprivate static func text(_ body: String, sequence: UInt64) throws -> [UInt8] {
    let covered = Array(#"","b":1,"s":\#(sequence),\#(body)"#.utf8)
    let sum = CRC32C.checksum(covered[...])
    let digits = (0..<8).map { Hexadecimal.digit(UInt64(sum >> (28 - 4 * UInt32($0)))) }
    return Array(#"{"c":""#.utf8) + digits + covered + [0x0A]
  }
}
