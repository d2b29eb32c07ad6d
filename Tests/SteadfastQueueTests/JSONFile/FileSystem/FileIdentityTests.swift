import Foundation
import TestSupport
import Testing

@testable import SteadfastQueue

/// Another program deletes, moves or replaces a queue's file or lock file while the queue uses it.
@Suite struct FileIdentityTests {
  /// The error that a call throws.
  private func errorThrown(by call: () async throws -> Void) async throws -> JSONFileError {
    try #require(await #expect(throws: JSONFileError.self) { try await call() })
  }

  private func insert(_ number: Int, into store: JSONFileStore) async throws {
    _ = try await store.apply([.insert(.make(number), onDuplicate: .keep)], durability: .durable)
  }

  /// Calls `body` with a new file that contains task 1, and with its open store.
  private func withOpenFile(
    _ body: (_ file: URL, _ store: JSONFileStore) async throws -> Void
  ) async throws {
    try await withTemporaryFolder { folder in
      let inner = folder.appending(path: "inner")
      try FileManager.default.createDirectory(at: inner, withIntermediateDirectories: false)
      let file = inner.appending(path: "queue.jsonl")
      let store = JSONFileStore(at: file)
      try await insert(1, into: store)
      try await body(file, store)
    }
  }

  private func taskNumbers(in file: URL) async throws -> [Int] {
    let store = JSONFileStore(at: file)
    let tasks = try await store.tasks(matching: TaskFilter(), after: nil, limit: 100)
    try await store.close()
    return tasks.map { Int($0.id.low) }
  }

  // MARK: The lock file

  @Test(arguments: [false, true])
  func `no second store can open a file whose lock file is deleted or replaced`(isReplaced: Bool)
    async throws
  {
    try await withOpenFile { file, store in
      let lock = URL(filePath: file.path + ".lock")
      try FileManager.default.removeItem(at: lock)
      if isReplaced { try Data("1\n".utf8).write(to: lock) }
      let refusal = try await errorThrown { try await JSONFileStore(at: file).open() }
      #expect(refusal.code == .inUse)
      #expect(refusal.message.contains(file.path))
      try await insert(2, into: store)
      try await store.close()
      #expect(try await taskNumbers(in: file) == [1, 2])
    }
  }

  @Test func `the new file that a compaction writes is locked too`() async throws {
    try await withTemporaryFolder { folder in
      let file = folder.appending(path: "queue.jsonl")
      let executor = ManualExecutor { 0 }
      let core = JSONFileCore(
        file,
        compactionPolicy: CompactionPolicy(minimumSize: 0, spareSize: 0, stepSize: 1),
        thread: { executor }
      ) { (nil, FileStorage(path: file.path)) }
      try await executor.run {
        try await core.open()
        for number in 1...20 {
          let change = TaskChange.insert(.make(number, key: "k"), onDuplicate: .replace)
          _ = try await core.apply([change], .durable)
        }
      }
      let statistics = try await executor.run { try await core.statistics() }
      #expect(statistics.lastCompaction != nil)
      #expect(throws: FileOpeningError.inUse) {
        try FileStorage(path: file.path).open(.journal)
      }
      try await executor.run { try await core.close() }
      #expect(try FileStorage(path: file.path).open(.journal) != nil)
    }
  }

  // MARK: The file

  @Test func `a store whose file was moved refuses changes until the file is back`() async throws {
    try await withOpenFile { file, store in
      let away = URL(filePath: file.path + ".away")
      try FileManager.default.moveItem(at: file, to: away)
      let refusal = try await errorThrown { try await insert(2, into: store) }
      #expect(refusal.code == .displaced)
      #expect(refusal.message.contains(file.path))
      try FileManager.default.moveItem(at: away, to: file)
      try await insert(3, into: store)
      try await store.close()
      #expect(try await taskNumbers(in: file) == [1, 3])
    }
  }

  @Test func `changes and closing fail after the folder was moved or deleted`() async throws {
    try await withOpenFile { file, store in
      let folder = file.deletingLastPathComponent()
      let away = folder.deletingLastPathComponent().appending(path: "away")
      try FileManager.default.moveItem(at: folder, to: away)
      #expect(try await errorThrown { try await insert(2, into: store) }.code == .displaced)
      try FileManager.default.removeItem(at: away)
      #expect(try await errorThrown { try await insert(3, into: store) }.code == .displaced)
      #expect(try await errorThrown { try await store.close() }.code == .displaced)
    }
  }

  @Test(arguments: [JSONFileStore.close, JSONFileStore.destroy])
  func `a file that replaced the queue's file is left alone`(
    ending: @Sendable (JSONFileStore) -> @Sendable () async throws -> Void
  ) async throws {
    try await withOpenFile { file, store in
      let diary = Data("my diary\n".utf8)
      try diary.write(to: file, options: .atomic)
      #expect(try await errorThrown { try await insert(2, into: store) }.code == .displaced)
      #expect(try await errorThrown { try await ending(store)() }.code == .displaced)
      #expect(try Data(contentsOf: file) == diary)
    }
  }

  @Test func `a compaction doesn't replace a file that another program has put at the path`()
    async throws
  {
    try await withTemporaryFolder { folder in
      let file = folder.appending(path: "queue.jsonl")
      let storage = FileStorage(path: file.path)
      let (journal, table) = try Journal.open(storage)
      var compaction = try Compaction(
        of: journal,
        snapshot: table.snapshot,
        in: storage
      )
      let diary = Data("my diary\n".utf8)
      try diary.write(to: file, options: .atomic)
      #expect(throws: Compaction.Failure.self) {
        try compaction.finish(journal, at: .seconds(0))
      }
      #expect(try Data(contentsOf: file) == diary)
      #expect(!FileManager.default.fileExists(atPath: file.path + ".new"))
    }
  }
}
