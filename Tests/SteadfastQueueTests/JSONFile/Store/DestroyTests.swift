import Foundation
import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

/// Destroys the files of stores in every state.
@Suite struct DestroyTests {
  private func withFile(_ body: (URL) async throws -> Void) async throws {
    try await withTemporaryFolder { folder in
      let file = folder.appending(path: "queue.jsonl")
      let store = JSONFileStore(at: file)
      _ = try await store.apply([.insert(.make(1), onDuplicate: .keep)], durability: .durable)
      try await store.close()
      try await body(file)
    }
  }

  private func fileNames(beside file: URL) throws -> Set<String> {
    let folder = file.deletingLastPathComponent()
    return Set(try FileManager.default.contentsOfDirectory(atPath: folder.path))
  }

  private func errorThrown(by call: () async throws -> Void) async throws -> JSONFileError {
    try #require(await #expect(throws: JSONFileError.self) { try await call() })
  }

  /// Expects that at most a lock file is left, and that the store refuses calls.
  private func expectDestroyed(_ file: URL, _ store: JSONFileStore) async throws {
    #expect(try fileNames(beside: file).subtracting(["queue.jsonl.lock"]).isEmpty)
    let calls: [() async throws -> Void] = [
      { try await store.open() }, { _ = try await store.count(matching: TaskFilter()) },
    ]
    for call in calls { #expect(try await errorThrown(by: call).code == .closed) }
  }

  @Test func `a closed store and a store that was never opened delete their files`()
    async throws
  {
    try await withFile { file in
      let unopened = JSONFileStore(at: file)
      try await unopened.destroy()
      try await expectDestroyed(file, unopened)
      let closed = JSONFileStore(at: file)
      try await closed.open()
      try await closed.close()
      try await closed.destroy()
      try await expectDestroyed(file, closed)
    }
  }

  @Test func `destroying a store without a file creates nothing`() async throws {
    try await withTemporaryFolder { folder in
      let store = JSONFileStore(at: folder.appending(path: "queue.jsonl"))
      try await store.destroy()
      try await expectDestroyed(folder.appending(path: "queue.jsonl"), store)
      #expect(try FileManager.default.contentsOfDirectory(atPath: folder.path).isEmpty)
      let nowhere = JSONFileStore(at: folder.appending(path: "none/queue.jsonl"))
      try await nowhere.destroy()
    }
  }

  @Test func `destroying again does nothing, even if another store has created a file since`()
    async throws
  {
    try await withFile { file in
      let first = JSONFileStore(at: file)
      try await first.open()
      try await first.destroy()
      try await first.destroy()
      let second = JSONFileStore(at: file)
      try await second.open()
      try await first.destroy()
      try await second.close()
      try await first.destroy()
      #expect(FileManager.default.fileExists(atPath: file.path))
    }
  }

  enum StoreState: CaseIterable { case unopened, open, closed }

  @Test(arguments: StoreState.allCases)
  func `concurrent calls of destroy all return`(state: StoreState) async throws {
    for _ in 0..<20 {
      try await withFile { file in
        let store = JSONFileStore(at: file)
        if state != .unopened { try await store.open() }
        if state == .closed { try await store.close() }
        try await withThrowingTaskGroup { group in
          for _ in 0..<8 { group.addTask { try await store.destroy() } }
          group.addTask { try? await store.close() }
          try await group.waitForAll()
        }
        try await expectDestroyed(file, store)
      }
    }
  }

  @Test func `concurrent calls of destroy all throw the error`() async throws {
    try await withTemporaryFolder { folder in
      let page = folder.appending(path: "index.html")
      try Data("<html>\n".utf8).write(to: page)
      let store = JSONFileStore(at: page)
      await withTaskGroup { group in
        for _ in 0..<8 {
          group.addTask { await #expect(throws: JSONFileError.self) { try await store.destroy() } }
        }
        for await error in group { #expect(error?.code == .notAQueueFile) }
      }
    }
  }

  // MARK: Durability

  /// Makes a store whose file is in memory.
  private func makeCore(isOpen: Bool) async throws -> (JSONFileCore, MemoryStorage) {
    var text = try JournalText()
    try text.addTasks(1...3)
    let storage = MemoryStorage(text.bytes)
    let core = JSONFileCore(URL(filePath: "/queue.jsonl")) { (nil, storage) }
    if isOpen { try await core.open() }
    return (core, storage)
  }

  @Test(arguments: [false, true])
  func `a deletion that isn't durable throws, and the next call makes it durable`(
    isOpen: Bool
  ) async throws {
    let (core, storage) = try await makeCore(isOpen: isOpen)
    for _ in 1...2 {
      storage.fail(.synchronizeFolder, EIO)
      #expect(try await errorThrown { try await core.destroy() }.code == .systemCall)
      #expect(storage.bytes(of: .journal) == nil)
    }
    try await core.destroy()
    #expect(storage.calls.last == .synchronizeFolder)
    let count = storage.calls.count
    try await core.destroy()
    #expect(storage.calls.count == count)
  }

  @Test(arguments: [false, true])
  func `a file stays if its folder can't be opened or its leftovers can't be removed`(
    isOpen: Bool
  ) async throws {
    for call in [MemoryStorage.Call.openFolder, .remove(.replacement)] {
      let (core, storage) = try await makeCore(isOpen: isOpen)
      storage.put(Array(storage.bytes.prefix(20)), as: .replacement)
      storage.fail(call, EIO)
      #expect(try await errorThrown { try await core.destroy() }.code == .systemCall)
      #expect(storage.bytes(of: .journal) != nil)
      try await core.destroy()
      #expect(storage.bytes(of: .journal) == nil)
      #expect(storage.bytes(of: .replacement) == nil)
    }
  }

  @Test func `a damaged file and a file of a newer version are deleted`() async throws {
    try await withFile { file in
      var text = try JournalText()
      try text.addTasks(1...3)
      let newer = Array(
        String(decoding: text.bytes, as: UTF8.self)
          .replacing("\"version\":1", with: "\"version\":9").utf8
      )
      let damaged = [0, 1].map { text.lines.flipping($0).flatMap { $0 } }
      for bytes in damaged + [newer] {
        try Data(bytes).write(to: file)
        let store = JSONFileStore(at: file)
        _ = try await errorThrown { try await store.open() }
        try await store.destroy()
        try await expectDestroyed(file, store)
      }
    }
  }

  @Test func `leftovers of a crash are deleted with the file`() async throws {
    try await withFile { file in
      try FileManager.default.copyItem(atPath: file.path, toPath: file.path + ".new")
      let store = JSONFileStore(at: file)
      try await store.destroy()
      try await expectDestroyed(file, store)
    }
  }

  @Test func `a file of another kind is left alone`() async throws {
    try await withTemporaryFolder { folder in
      let page = folder.appending(path: "index.html")
      let bytes = Data("<html>\n".utf8)
      try bytes.write(to: page)
      let store = JSONFileStore(at: page)
      for _ in 1...2 {
        #expect(try await errorThrown { try await store.destroy() }.code == .notAQueueFile)
      }
      #expect(try Data(contentsOf: page) == bytes)
      #expect(try FileManager.default.contentsOfDirectory(atPath: folder.path) == ["index.html"])
    }
  }

  @Test func `a file that another store has open is left alone until that store closes`()
    async throws
  {
    try await withFile { file in
      let store = JSONFileStore(at: file)
      try await store.open()
      let other = JSONFileStore(at: file)
      #expect(try await errorThrown { try await other.destroy() }.code == .inUse)
      #expect(try await store.count(matching: TaskFilter()) == 1)
      try await store.close()
      try await other.destroy()
      try await expectDestroyed(file, other)
    }
  }

  @Test func `a queue can destroy its file even if the file can't be opened`() async throws {
    try await withFile { file in
      var text = try JournalText()
      try text.addTasks(1...3)
      try Data(text.lines.flipping(1).flatMap { $0 }).write(to: file)
      let queue = TaskQueue(persistence: .jsonFile(at: file))
      await #expect(throws: (any Error).self) { try await queue.open() }
      try await queue.destroy()
      #expect(!FileManager.default.fileExists(atPath: file.path))
    }
  }

  @Test func `the conformance kit cleans up, so it can check the same paths again`() async throws {
    try await withTemporaryFolder { folder in
      let conformance = PersistenceConformance(randomCases: 1)
      for _ in 1...2 {
        let report = await conformance.check { JSONFileStore(at: folder.appending(path: $0)) }
        #expect(report.passes, "\(report)")
        let left = try FileManager.default.contentsOfDirectory(atPath: folder.path)
        #expect(left.filter { !$0.hasSuffix(".lock") } == [])
      }
    }
  }
}
