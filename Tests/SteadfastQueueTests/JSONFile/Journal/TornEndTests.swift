import Foundation
import TestSupport
import Testing

@testable import SteadfastQueue

/// Tests the torn end of a file: a damaged line and all later lines, which opening cuts off.
@Suite struct TornEndTests {
  /// The lines of a file that was never flushed, so that no line marks earlier lines as durable.
  private func unflushedFile(taskCount count: Int) throws -> [[UInt8]] {
    let entries =
      [JournalEntry.header(version: 1, generation: 1)]
      + (1...count).map { .change(.insert(.make($0), onDuplicate: .keep)) }
    return try entries.enumerated().map { index, entry in
      var line: [UInt8] = []
      JournalLine.append(
        try JournalBody(entry),
        sequence: UInt64(index),
        firstUnsynced: 0,
        isContinued: false,
        to: &line
      )
      return line
    }
  }

  private var repairedNumbers: [Int] { Array(3...50) }

  @Test func `lines after a damaged one are copied before they are cut off`() throws {
    let lines = try unflushedFile(taskCount: 50).flipping(2)
    let end = lines[2...].flatMap { $0 }
    let storage = MemoryStorage(lines.flatMap { $0 })
    #expect(try Journal.open(storage).table.numbers == [1])
    #expect(storage.bytes(of: .torn(1)) == end)
    #expect(try JournalInspection(end).table.numbers == repairedNumbers)
    // The copy is durable before anything is cut off.
    let calls = storage.calls
    let cut = try #require(calls.firstIndex { if case .truncate = $0 { true } else { false } })
    let named = try #require(calls.firstIndex(of: .rename(.replacement, .torn(1))))
    #expect(calls[named...cut].contains(.synchronizeFolder))
    #expect(calls[..<named].contains(.synchronize))
  }

  @Test func `a torn end is cut off without a copy if it has no whole good line`() throws {
    let lines = try unflushedFile(taskCount: 5)
    for end in [Array(lines[5].dropLast()), lines.flipping(5)[5], Array("{\"c\":".utf8)] {
      let storage = MemoryStorage(lines[..<5].flatMap { $0 } + end)
      #expect(try Journal.open(storage).table.numbers == [1, 2, 3, 4])
      #expect(storage.bytes(of: .torn(1)) == nil)
    }
  }

  @Test func `nothing is cut off if the disk has no space for the copy`() throws {
    let bytes = try unflushedFile(taskCount: 9).flipping(3).flatMap { $0 }
    let storage = MemoryStorage(bytes)
    storage.fail(.append, ENOSPC)
    #expect(throws: (any Error).self) { try Journal.open(storage) }
    #expect(storage.bytes == bytes)
    #expect(storage.bytes(of: .torn(1)) == nil)
    #expect(try Journal.open(storage).table.numbers == [1, 2])
    #expect(storage.bytes(of: .torn(1)) != nil)
  }

  @Test func `repairing the copy saves the tasks that were cut off`() async throws {
    try await withTemporaryFolder { folder in
      let file = folder.appending(path: "queue.jsonl")
      try Data(try unflushedFile(taskCount: 50).flipping(2).flatMap { $0 }).write(to: file)
      let store = JSONFileStore(at: file, flushing: .leftToSystem)
      #expect(try await store.count(matching: TaskFilter()) == 1)
      try await store.close()
      let copy = URL(filePath: file.path + ".torn-1")
      let repair = try await JSONFileStore.repair(at: copy)
      #expect(repair.report.counts == [.waiting: 48])
      let saved = JSONFileStore(at: copy)
      #expect(try await saved.count(matching: TaskFilter()) == 48)
      try await saved.close()
    }
  }
}
