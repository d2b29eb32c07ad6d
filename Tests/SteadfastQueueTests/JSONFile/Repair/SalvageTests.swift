import Foundation
import Testing

@testable import SteadfastQueue

/// Tests which tasks are saved from a file that has lost lines.
@Suite struct SalvageTests {
  private func lease(_ number: Int) -> Lease { Lease(id: .numbered(number), token: 0) }

  /// Salvages a file that has lost the lines of the entries with these numbers, counted from 1.
  private func salvage(_ entries: [JournalEntry], losing lost: Int...) throws -> JournalInspection {
    var text = try JournalText()
    for entry in entries { try text.add(entry) }
    try text.add(.seal)
    var lines = text.lines
    for number in lost.sorted(by: >) { lines.remove(at: number) }
    #expect(throws: JournalProblem.self) { try JournalReader.read(lines.flatMap { $0 }) }
    return try JournalInspection(lines.flatMap { $0 })
  }

  private func insertion(
    _ number: Int,
    key: String? = nil,
    _ policy: UniquePolicy = .keep
  ) -> JournalEntry {
    .change(.insert(.make(number, key: key), onDuplicate: policy))
  }

  @Test
  func `the end of an attempt counts even if the line of the attempt's start was lost`() throws {
    let failure = TaskFailure(reason: "no", date: .seconds(2))
    let ends: [(TaskChange, TaskState?)] = [
      (.succeed(lease(1), at: .seconds(2), retains: false), nil),
      (.succeed(lease(1), at: .seconds(2), retains: true), .succeeded),
      (.abandon(lease(1), failure: failure, retains: true), .abandoned),
      (.retry(lease(1), availableDate: .seconds(9), retryCount: 3, failure: failure), .waiting),
      (.park(lease(1), failure: failure), .parked),
      (.release(lease(1)), .waiting),
    ]
    for (end, state) in ends {
      let found = try salvage([insertion(1), .begin(.numbered(1)), .change(end)], losing: 2)
      let record = found.table.record(of: .numbered(1))
      #expect(record?.state == state)
      #expect(record.map { $0.interruptionCount == 0 } ?? true)
      if end.move?.kind == .retry { #expect(record?.retryCount == 3) }
    }
  }

  @Test
  func `a task is performed again, with one interruption, if the line of its end was lost`()
    throws
  {
    let success = TaskChange.succeed(lease(1), at: .seconds(2), retains: false)
    let found = try salvage(
      [insertion(1), .begin(.numbered(1)), .change(success), insertion(2)],
      losing: 3
    )
    let record = try #require(found.table.record(of: .numbered(1)))
    #expect(record.state == .waiting)
    #expect(record.interruptionCount == 1)
  }

  @Test
  func `the start of an attempt counts even if the line of the task's earlier release was lost`()
    throws
  {
    let failure = TaskFailure(reason: "no", date: .seconds(2))
    let asides: [[JournalEntry]] = [
      [.change(.pause(.unclaimed(.numbered(1)))), .change(.resume(.numbered(1)))],
      [
        .begin(.numbered(1)), .change(.park(lease(1), failure: failure)),
        .change(.unpark(name: "Note")),
      ],
      [
        .begin(.numbered(1)), .change(.abandon(lease(1), failure: failure, retains: true)),
        .change(.restart(.unclaimed(.numbered(1)), availableDate: .seconds(0))),
      ],
    ]
    for aside in asides {
      let entries =
        [insertion(1)] + aside + [
          .begin(.numbered(1)), .change(.succeed(lease(1), at: .seconds(3), retains: false)),
        ]
      let found = try salvage(entries, losing: 1 + aside.count)
      #expect(found.table.numbers == [])
      #expect(found.skipped.count == 0)
    }
  }

  @Test func `a removal counts even if the line of the task's end was lost`() throws {
    let found = try salvage(
      [
        insertion(1), .begin(.numbered(1)),
        .change(.succeed(lease(1), at: .seconds(3), retains: true)),
        .change(.remove(.numbered(1))), insertion(2),
      ],
      losing: 3
    )
    #expect(found.table.numbers == [2])
  }

  @Test func `a task is saved even if another task seems to hold its key`() throws {
    // The first task succeeded before the second was stored, but the line of its success was lost.
    let found = try salvage(
      [
        insertion(1, key: "K"), .begin(.numbered(1)),
        .change(.succeed(lease(1), at: .seconds(3), retains: false)),
        insertion(2, key: "K"), insertion(3),
      ],
      losing: 3
    )
    #expect(found.table.numbers == [1, 2, 3])
    // The second task keeps the key.
    #expect(found.table.record(of: .numbered(2))?.keyRole == .holder)
    #expect(found.table.record(of: .numbered(1))?.keyRole == nil)
  }

  @Test func `the remaining lines of a batch without its end are saved`() throws {
    var text = try JournalText()
    try text.addBatch([insertion(1), insertion(2), insertion(3)])
    try text.addTasks([4])
    let found = try JournalInspection(text.lines.dropping(3).flatMap { $0 })
    #expect(found.table.numbers == [1, 2, 4])
    #expect(found.report.problems.map(\.line) == [4])
  }

  @Test func `a payload that looks like a line isn't read as a line`() throws {
    // The payload of a damaged line contains another line. If that counted, a caller could forge
    // tasks by enqueuing such a payload.
    var forged = try JournalText()
    try forged.addTasks([66])
    let inner = String(decoding: forged.lines[1].dropLast(), as: UTF8.self)
    var record = TaskRecord.make(2)
    record = TaskRecord(
      id: record.id,
      name: record.name,
      payload: StoredPayload(Array("[\(inner)]".utf8), format: .json),
      createdDate: record.createdDate,
      availableDate: record.availableDate
    )
    var text = try JournalText()
    try text.addTasks([1])
    try text.add(.change(.insert(record, onDuplicate: .keep)))
    try text.addTasks([3])
    var lines = text.lines
    lines[2][20] ^= 1
    #expect(try JournalInspection(lines.flatMap { $0 }).table.numbers == [1, 3])
    // The inner line isn't read either if the outer line is cut off where the inner line ends.
    let end = lines[2].count - 3
    lines[2] = Array(lines[2][..<end]) + [0x0A]
    #expect(try JournalInspection(lines.flatMap { $0 }).table.numbers == [1, 3])
  }

  @Test(arguments: [1, 4, 4096])
  func `a whole line directly after zeros is saved`(count: Int) throws {
    var text = try JournalText()
    try text.addTasks(1...5)
    // The earlier lines were lost, as if the file had been emptied while it was in use.
    let zeros = [UInt8](repeating: 0, count: count)
    let end = Array(text.lines[3...].joined())
    let emptied = try JournalInspection(zeros + end)
    #expect(emptied.table.numbers == [3, 4, 5])
    let start = Array(text.lines[..<2].joined()) + text.lines[2].prefix(50)
    let inside = try JournalInspection(start + zeros + end)
    #expect(inside.table.numbers == [1, 3, 4, 5])
    #expect(inside.report.problems.map(\.reason) == ["there are zeros before it"])
  }

  @Test(arguments: [(0, 0), (1, 0), (0, 3), (1, 3), (3, 1), (9, 0), (0, 9)])
  func `two lines without a line feed between them are saved, whatever their payloads contain`(
    first: Int,
    second: Int
  ) throws {
    var text = try JournalText()
    for (number, count) in [(1, first), (2, second), (3, 0)] {
      // A string that contains what looks like the starts of lines.
      let payload = repeatElement(#"{"c":""}"#, count: count).joined(separator: ",")
      let record = TaskRecord.make(number).replacing(
        payload: StoredPayload(Array("[\(payload)]".utf8), format: .json)
      )
      try text.add(.change(.insert(record, onDuplicate: .keep)))
    }
    var lines = text.lines
    lines[1].removeLast()
    #expect(try JournalInspection(Array(lines.joined())).table.numbers == [1, 2, 3])
  }

  @Test func `a batch with all its lines is complete, even after a damaged line`()
    throws
  {
    var text = try JournalText()
    try text.addBatch([insertion(1), insertion(2)])
    try text.addBatch([insertion(3), insertion(4)])
    try text.addTasks([5])
    // The line that ends the first batch is bad. The next line is not part of that batch, and good.
    let found = try JournalInspection(text.lines.flipping(2).flatMap { $0 })
    #expect(found.table.numbers == [1, 3, 4, 5])
    #expect(found.report.problems.map(\.line) == [3])
  }

  @Test(arguments: [false, true])
  func `a file with CRLF line endings is reported, and its tasks are saved`(isClosed: Bool)
    throws
  {
    var text = try JournalText(generation: 2)
    try text.addTasks(1...3)
    if isClosed { try text.add(.seal) }
    let bytes = Array(text.lines.map { Array($0.dropLast()) + [0x0D, 0x0A] }.joined())
    #expect(
      throws: JournalProblem.damaged(line: 1, byte: 0, reason: JournalLine.carriageReturnProblem)
    ) {
      try JournalReader.read(bytes)
    }
    let found = try JournalInspection(bytes)
    #expect(found.table.numbers == [1, 2, 3])
    #expect(found.report.generation == 2)
    #expect(found.report.wasClosed == isClosed)
    #expect(found.report.problemCount == text.lines.count)
    #expect(found.skipped.count == 0)
  }

  @Test func `swapped lines count in the order of their sequence numbers`() throws {
    var text = try JournalText()
    try text.addTasks([1, 2])
    try text.addSuccess(of: 1)
    var lines = text.lines
    lines.swapAt(1, 4)
    let found = try JournalInspection(lines.flatMap { $0 })
    #expect(found.table.numbers == [2])
    #expect(found.skipped.count == 0)
    #expect(found.report.lostRecordCount == 0)
  }

  @Test func `a line that occurs twice counts once`() throws {
    var text = try JournalText()
    try text.addTasks([1])
    try text.add(
      .change(.cancel(.unclaimed(.numbered(1)), at: .seconds(1), retains: true)),
      .change(.restart(.unclaimed(.numbered(1)), availableDate: .seconds(0)))
    )
    try text.addSuccess(of: 1)
    try text.addTasks([1])
    // If the restart counted again, after the success, the task would be performed again.
    let lines = text.lines + [text.lines[3]]
    let found = try JournalInspection(lines.flatMap { $0 })
    #expect(found.report.problems.map(\.reason) == ["it is a duplicate of an earlier line"])
    #expect(found.table.record(of: .numbered(1))?.retryCount == 0)
  }

  @Test func `the tasks of two files that were mixed are all saved`() throws {
    var first = try JournalText(generation: 1)
    try first.addTasks(1...4)
    try first.addSuccess(of: 2)
    var second = try JournalText(generation: 4)
    try second.addTasks(11...14)
    try second.addSuccess(of: 13)
    let mixed = zip(first.lines, second.lines).flatMap { [$0, $1] }
    let found = try JournalInspection(mixed.flatMap { $0 })
    #expect(found.table.numbers == [1, 3, 4, 11, 12, 14])
    #expect(!found.report.isSound)
    // The skipped line is the second header.
    #expect(found.skipped.first.map(\.line) == [2])
    #expect(found.report.counts == [.waiting: 6])
  }

  @Test func `every task whose insertion remains is saved, whatever other lines are lost`() throws {
    var text = try JournalText()
    for number in 1...4 {
      try text.add(insertion(number, key: "K\(number % 2)", .replace))
      if number == 3 { try text.addSuccess(of: number) }
    }
    try text.addTasks(7...9)
    let lines = text.lines
    for mask in 0..<(1 << (lines.count - 1)) {
      let kept = lines.enumerated().filter { $0.offset == 0 || mask >> ($0.offset - 1) & 1 == 1 }
      let found = try JournalInspection(kept.flatMap(\.element))
      // The last three tasks have no key, and don't end.
      for number in 7...9 {
        let index = lines.count - 10 + number
        let isKept = kept.contains { $0.offset == index }
        #expect((found.table.record(of: .numbered(number)) != nil) == isKept)
      }
    }
  }
}
