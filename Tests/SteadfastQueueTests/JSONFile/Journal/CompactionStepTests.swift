import Foundation
import Testing

@testable import SteadfastQueue

/// Tests that a compaction's steps are small, because other work waits for each step.
@Suite struct CompactionStepTests {
  private let storage = MemoryStorage()

  @Test(arguments: [(1000, 10), (99, 1), (1, 1), (0, 0)])
  func `a step of a compaction writes a limited number of tasks, and skips empty slots`(
    alive: Int,
    steps: Int
  ) throws {
    let journal = try Journal.open(storage).journal
    var table = TaskTable()
    _ = table.apply((1...2000).map { .insert(.make($0), onDuplicate: .keep) })
    _ = table.apply(
      (1...2000 - alive).map { .cancel(.unclaimed(.numbered($0)), at: .seconds(0), retains: false) }
    )
    var compaction = try Compaction(
      of: journal,
      snapshot: table.snapshot,
      in: storage,
      CompactionPolicy(stepTasks: 100)
    )
    var sizes: [Int] = []
    while case .unfinished = try compaction.advance(journal, at: .seconds(0)) {
      sizes.append(storage.bytes(of: .replacement)?.count { $0 == 0x0A } ?? 0)
    }
    #expect(sizes == (0..<steps).map { 1 + min(alive, 100 * ($0 + 1)) })
    #expect(try JournalReader.read(storage.bytes).table.taskCount == alive)
  }

  @Test func `lines that are appended while tasks are copied are copied in steps too`() throws {
    var journal = try Journal.open(storage).journal
    var table = TaskTable()
    for number in 1...3 { table.insert(.make(number)) }
    var compaction = try Compaction(
      of: journal,
      snapshot: table.snapshot,
      in: storage,
      CompactionPolicy(stepSize: 500, stepTasks: 1)
    )
    _ = try compaction.advance(journal, at: .seconds(0))
    for number in 4...103 {
      try journal.append([[JournalBody(.change(.insert(.make(number), onDuplicate: .keep)))]])
    }
    let lines = journal.size
    var sizes = [storage.bytes(of: .replacement)?.count ?? 0]
    while case .unfinished = try compaction.advance(journal, at: .seconds(0)) {
      sizes.append(storage.bytes(of: .replacement)?.count ?? 0)
    }
    #expect(sizes.count > lines / 500)
    #expect(zip(sizes, sizes.dropFirst()).allSatisfy { $1 - $0 <= 500 })
    #expect(try JournalReader.read(storage.bytes).table.taskCount == 103)
  }

  @Test func `a compaction does not write a task that has grown too large to be read`() throws {
    let journal = try Journal.open(storage).journal
    let bytes = storage.bytes
    var table = TaskTable()
    table.insert(
      TaskRecord(
        id: .numbered(1),
        name: "Note",
        payload: StoredPayload([], format: .binary),
        createdDate: .seconds(0),
        availableDate: .seconds(0),
        // The error was added by a later line, so the insertion's line was not too large.
        lastError: String(repeating: "x", count: JournalLine.maxLength)
      )
    )
    var compaction = try Compaction(
      of: journal,
      snapshot: table.snapshot,
      in: storage
    )
    #expect(throws: Compaction.Failure.self) {
      try compaction.finish(journal, at: .seconds(0))
    }
    #expect(storage.bytes == bytes)
  }

  @Test func `a compaction frees copied tasks as it proceeds, not only at its end`() throws {
    final class Token: Codable, Sendable {}
    let journal = try Journal.open(storage).journal
    var table = TaskTable()
    var token: Token? = Token()
    weak let first = token
    table.insert(
      TaskRecord(
        id: .numbered(0),
        name: "Note",
        payload: StoredPayload(token, version: 1),
        createdDate: .seconds(0),
        availableDate: .seconds(0)
      )
    )
    token = nil
    for number in 1..<3 * Slab<TaskTable.Entry>.pageSize { table.insert(.make(number)) }
    var compaction = try Compaction(
      of: journal,
      snapshot: table.snapshot,
      in: storage,
      CompactionPolicy(stepTasks: Slab<TaskTable.Entry>.pageSize + 1)
    )
    table = TaskTable()
    #expect(first != nil)
    _ = try compaction.advance(journal, at: .seconds(0))
    #expect(first == nil)
    try compaction.finish(journal, at: .seconds(0))
    let found = try JournalReader.read(storage.bytes).table
    #expect(found.taskCount == 3 * Slab<TaskTable.Entry>.pageSize)
  }
}
