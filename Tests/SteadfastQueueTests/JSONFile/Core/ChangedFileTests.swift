import Foundation
import TestSupport
import Testing

@testable import SteadfastQueue

/// Tests a store whose file is changed by another program while it is open.
@Suite struct ChangedFileTests {
  private func insert(_ number: Int, into store: JSONFileStore) async throws {
    _ = try await store.apply([.insert(.make(number), onDuplicate: .keep)], durability: .durable)
  }

  private func change(_ file: URL, _ body: (FileHandle) throws -> Void) throws {
    let handle = try FileHandle(forUpdating: file)
    try body(handle)
    try handle.close()
  }

  enum Change: CaseIterable {
    case emptied, cut, extended

    func make(_ handle: FileHandle) throws {
      switch self {
      case .emptied: try handle.truncate(atOffset: 0)
      case .cut: try handle.truncate(atOffset: 100)
      case .extended:
        try handle.seekToEnd()
        try handle.write(contentsOf: Data("note\n".utf8))
      }
    }
  }

  @Test(arguments: Change.allCases)
  func `a store whose file another program has changed refuses changes until the file is restored`(
    change: Change
  ) async throws {
    try await withTemporaryFolder { folder in
      let file = folder.appending(path: "queue.jsonl")
      let store = JSONFileStore(at: file)
      try await insert(1, into: store)
      let before = try Data(contentsOf: file)
      try self.change(file, change.make)
      let changed = try Data(contentsOf: file)
      for _ in 0..<2 {
        let error = await #expect(throws: JSONFileError.self) { try await insert(2, into: store) }
        #expect(error?.code == .changed)
        #expect(error?.message.contains("has \(changed.count) bytes") == true)
        #expect(error?.message.contains("bytes instead of \(before.count).") == true)
      }
      let request = ClaimRequest(limit: 1, names: ["Note": 1], now: .seconds(0))
      let error = await #expect(throws: JSONFileError.self) { try await store.claim(request) }
      #expect(error?.code == .changed)
      // The other program's changes remain, and the store still has its task in memory.
      #expect(try Data(contentsOf: file) == changed)
      #expect(try await store.count(matching: TaskFilter()) == 1)
      try self.change(file) { handle in
        try handle.truncate(atOffset: 0)
        try handle.write(contentsOf: before)
      }
      try await insert(3, into: store)
      try await store.close()
      let again = JSONFileStore(at: file)
      #expect(try await again.count(matching: TaskFilter()) == 2)
      try await again.close()
    }
  }

  @Test func `closing reports that the file was changed, and adds nothing to it`() async throws {
    try await withTemporaryFolder { folder in
      let file = folder.appending(path: "queue.jsonl")
      let store = JSONFileStore(at: file)
      try await insert(1, into: store)
      try change(file, Change.emptied.make)
      let error = await #expect(throws: JSONFileError.self) { try await store.close() }
      #expect(error?.code == .changed)
      #expect(try Data(contentsOf: file) == Data())
    }
  }

  @Test(arguments: Change.allCases)
  func `a compaction does not replace a file that another program has changed`(
    change: Change
  ) async throws {
    try await withTemporaryFolder { folder in
      let file = folder.appending(path: "queue.jsonl")
      let storage = FileStorage(path: file.path)
      var (journal, table) = try Journal.open(storage)
      try journal.append([[JournalBody(.change(.insert(.make(1), onDuplicate: .keep)))]])
      table.insert(.make(1))
      var compaction = try Compaction(
        of: journal,
        snapshot: table.snapshot,
        in: storage
      )
      try self.change(file, change.make)
      let changed = try Data(contentsOf: file)
      let error = #expect(throws: Compaction.Failure.self) {
        try compaction.finish(journal, at: .seconds(0))
      }
      let expected = Journal.Failure.changed(size: changed.count, expected: journal.size)
      #expect(error?.cause as? Journal.Failure == expected)
      #expect(try Data(contentsOf: file) == changed)
      #expect(!FileManager.default.fileExists(atPath: file.path + ".new"))
    }
  }
}
