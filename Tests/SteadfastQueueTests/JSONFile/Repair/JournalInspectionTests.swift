import Foundation
import Testing

@testable import SteadfastQueue

/// The lines of a closed file of five tasks, the second of which has succeeded.
///
/// In order: the header, five insertions, the start and the success of task 2, and the seal.
private func fiveTasks() throws -> [[UInt8]] {
  var text = try JournalText()
  try text.addTasks(1...5)
  try text.addSuccess(of: 2)
  try text.add(.seal)
  return text.lines
}

private func inspect(_ lines: [[UInt8]]) throws -> JournalInspection {
  try JournalInspection(lines.flatMap { $0 })
}

private func readerRefuses(_ lines: [[UInt8]]) -> Bool {
  (try? JournalReader.read(lines.flatMap { $0 })) == nil
}

@Suite struct JournalInspectionTests {
  @Test func `a file that was closed is sound`() throws {
    let lines = try fiveTasks()
    let report = try inspect(lines).report
    #expect(report.isSound)
    #expect(report.problems.isEmpty)
    #expect(report.version == 1)
    #expect(report.generation == 1)
    #expect(report.recordCount == 9)
    #expect(report.byteCount == lines.joined().count)
    #expect(report.counts == [.waiting: 4])
    #expect(report.wasClosed)
    #expect(report.tornByteCount == 0)
    #expect(report.lostRecordCount == 0)
  }

  @Test func `a torn end is reported, but not as a problem`() throws {
    var lines = try fiveTasks()
    lines[8].removeLast(3)
    let report = try inspect(lines).report
    #expect(report.isSound)
    #expect(report.tornByteCount == lines[8].count)
    #expect(!report.wasClosed)
    #expect(report.recordCount == 8)
  }

  @Test func `an empty file is sound`() throws {
    #expect(try JournalInspection([]).report == JSONFileReport())
  }

  @Test func `a damaged line between the header and the seal is named, and no other line is lost`()
    throws
  {
    let lines = try fiveTasks()
    for index in 1..<8 {
      let inspection = try inspect(lines.flipping(index))
      let report = inspection.report
      #expect(readerRefuses(lines.flipping(index)), "line \(index + 1)")
      #expect(report.problems.first?.line == index + 1)
      #expect(report.problems.first?.byte == lines[..<index].joined().count)
      #expect(report.lostRecordCount == 1)
      #expect(inspection.skipped.first.first?.reason == "its checksum is wrong")
      // Without the insertion of task 2, its start and its success are problems, too. A lost start
      // is known from the success. If the success is lost, the task is performed again.
      let expected: (numbers: [Int], problems: Int) =
        switch index {
        case 2: ([1, 3, 4, 5], 3)
        case 1...5: ([1, 2, 3, 4, 5].filter { $0 != index && $0 != 2 }, 1)
        case 6: ([1, 3, 4, 5], 1)
        default: ([1, 2, 3, 4, 5], 1)
        }
      #expect(inspection.table.numbers == expected.numbers, "line \(index + 1)")
      #expect(report.problemCount == expected.problems, "line \(index + 1)")
    }
  }

  @Test func `a line that was cut out, cut short, doubled or swapped is named`() throws {
    let lines = try fiveTasks()
    var short = lines
    short[3].removeLast(20)
    short[3].append(0x0A)
    var merged = lines
    merged[3].removeLast()
    var blurred = lines
    blurred[3][lines[3].count - 1] = 0x1A
    var doubled = lines
    doubled.insert(lines[3], at: 6)
    var swapped = lines
    swapped.swapAt(3, 5)
    let cases: [(lines: [[UInt8]], numbers: [Int], problems: [Int], skipped: Int)] = [
      (lines.dropping(3), [1, 4, 5], [4], 0),
      (short, [1, 4, 5], [4], 1),
      // The line feed between two lines was lost, or was changed to another byte.
      (merged, [1, 3, 4, 5], [4], 0),
      (blurred, [1, 3, 4, 5], [4], 0),
      (doubled, [1, 3, 4, 5], [7], 1),
      (swapped, [1, 3, 4, 5], [4, 5, 6], 0),
    ]
    for (lines, numbers, problems, skipped) in cases {
      #expect(readerRefuses(lines))
      let inspection = try inspect(lines)
      #expect(inspection.table.numbers == numbers)
      #expect(inspection.report.problems.map(\.line) == problems)
      #expect(inspection.skipped.count == skipped)
    }
  }

  @Test func `all problems are counted, and the first thousand are named`() throws {
    var text = try JournalText()
    try text.addTasks(1...2400)
    var lines = text.lines
    for index in stride(from: 1, to: 2400, by: 2) { lines = lines.flipping(index) }
    let inspection = try inspect(lines)
    #expect(inspection.report.problemCount == 1200)
    #expect(inspection.report.problems.map(\.line) == stride(from: 2, to: 2002, by: 2) + [])
    #expect(inspection.report.lostRecordCount == 1200)
    #expect(inspection.table.numbers == stride(from: 2, through: 2400, by: 2) + [])
  }

  @Test func `a broken header is damage if good lines follow`() throws {
    let lines = try fiveTasks()
    for damaged in [lines.flipping(0), lines.dropping(0), [Array("\u{FEFF}".utf8)] + lines] {
      #expect {
        try JournalReader.read(damaged.flatMap { $0 })
      } throws: { error in
        guard case .damaged(line: 1, byte: 0, _)? = error as? JournalProblem else { return false }
        return true
      }
      let inspection = try inspect(damaged)
      #expect(inspection.table.numbers == [1, 3, 4, 5])
      #expect(inspection.report.version == nil)
      #expect(inspection.report.problems.map(\.line) == [1])
    }
  }

  @Test func `a file cut in half keeps its whole lines`() throws {
    let bytes = try fiveTasks().flatMap { $0 }
    let report = try JournalInspection(Array(bytes[..<(bytes.count / 2)])).report
    #expect(report.isSound)
    #expect(report.tornByteCount > 0)
    // From the second half alone, all tasks that were inserted in it are saved.
    let inspection = try JournalInspection(Array(bytes[(bytes.count / 2)...]))
    #expect(inspection.table.numbers == [4, 5])
    #expect(!inspection.report.isSound)
  }

  // MARK: Refused files

  @Test(arguments: ["hello", "{}\n", "[1,2]\n\n\n", "\0\0\0\0\n"])
  func `a file without a single good line is not a queue's file`(text: String) {
    #expect(throws: JournalProblem.notAJournal) { try JournalInspection(Array(text.utf8)) }
  }

  @Test func `a file of a newer version is refused, damaged or not`() throws {
    var newer = JournalLineText()
    newer.add(#""k":"header","format":"steadfast-queue","version":2,"generation":1}"#)
    newer.add(#""k":"unpark","name":"A"}"#)
    newer.add(#""k":"unpark","name":"B"}"#)
    #expect(throws: JournalProblem.newerVersion(2)) {
      try inspect(newer.lines.flipping(1))
    }

    var unknown = JournalLineText()
    unknown.add(#""k":"header","format":"steadfast-queue","version":1,"generation":1}"#)
    unknown.add(#""k":"unpark","name":"A"}"#)
    unknown.add(#""k":"unpark","name":"B"}"#)
    unknown.add(#""k":"teleport"}"#)
    #expect(throws: JournalProblem.unknownKind("teleport", line: 4)) {
      try inspect(unknown.lines.flipping(1))
    }

    var other = JournalLineText()
    other.add(#""k":"header","format":"somebody's","version":1,"generation":1}"#)
    other.add(#""k":"unpark","name":"A"}"#)
    #expect(throws: JournalProblem.notAJournal) { try inspect(other.lines) }
  }
}

/// Lines with arbitrary bodies and correct checksums.
private struct JournalLineText {
  private(set) var lines: [[UInt8]] = []

  mutating func add(_ body: String) {
    let sequence = lines.count
    let covered = Array(#"","b":\#(sequence),"s":\#(sequence),\#(body)"#.utf8)
    let sum = CRC32C.checksum(covered[...])
    let digits = (0..<8).map { Hexadecimal.digit(UInt64(sum >> (28 - 4 * UInt32($0)))) }
    lines.append(Array(#"{"c":""#.utf8) + digits + covered + [0x0A])
  }
}
