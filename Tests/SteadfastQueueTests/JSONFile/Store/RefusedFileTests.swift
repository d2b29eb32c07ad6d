import Foundation
import TestSupport
import Testing

@testable import SteadfastQueue

/// Tests that opening leaves a file and its folder unchanged if the file is refused.
@Suite struct RefusedFileTests {
  private func errorThrown(by call: () async throws -> Void) async throws -> JSONFileError {
    try #require(await #expect(throws: JSONFileError.self) { try await call() })
  }

  private func mode(of file: URL) throws -> Int? {
    try FileManager.default.attributesOfItem(atPath: file.path)[.posixPermissions] as? Int
  }

  private func fileNames(in folder: URL) throws -> Set<String> {
    Set(try FileManager.default.contentsOfDirectory(atPath: folder.path))
  }

  private func writeFile(_ bytes: [UInt8], at file: URL, mode: Int = 0o600) throws {
    try Data(bytes).write(to: file)
    try FileManager.default.setAttributes([.posixPermissions: mode], ofItemAtPath: file.path)
  }

  @Test(arguments: [0o644, 0o755, 0o640])
  func `a foreign file keeps its permissions, and gets no lock file`(mode: Int) async throws {
    try await withTemporaryFolder { folder in
      let page = folder.appending(path: "index.html")
      try writeFile(Array("<html>\n".utf8), at: page, mode: mode)
      for attempt in [
        { try await JSONFileStore(at: page).open() },
        { _ = try await JSONFileStore.verify(at: page) },
        { _ = try await JSONFileStore.repair(at: page) },
      ] {
        #expect(try await errorThrown(by: attempt).code == .notAQueueFile)
        #expect(try self.mode(of: page) == mode)
        #expect(try fileNames(in: folder) == ["index.html"])
      }
    }
  }

  @Test func `a damaged file keeps its permissions`() async throws {
    try await withTemporaryFolder { folder in
      let file = folder.appending(path: "queue.jsonl")
      var text = try JournalText()
      try text.addTasks(1...3)
      try writeFile(text.lines.flipping(1).flatMap { $0 }, at: file, mode: 0o644)
      #expect(try await errorThrown { try await JSONFileStore(at: file).open() }.code == .damaged)
      #expect(try mode(of: file) == 0o644)
    }
  }

  @Test func `a second store that can't open leaves the files of the first store unchanged`()
    async throws
  {
    try await withTemporaryFolder { folder in
      let file = folder.appending(path: "queue.jsonl")
      let options = JSONFileStore.Options(permissions: .groupMayRead)
      let store = JSONFileStore(at: file, options: options)
      try await store.open()
      #expect(try await errorThrown { try await JSONFileStore(at: file).open() }.code == .inUse)
      #expect(try mode(of: file) == 0o640)
      #expect(try mode(of: URL(filePath: file.path + ".lock")) == 0o640)
      // Without the lock file, only the lock on the queue's file keeps the second store out.
      try FileManager.default.removeItem(atPath: file.path + ".lock")
      #expect(try await errorThrown { try await JSONFileStore(at: file).open() }.code == .inUse)
      #expect(try mode(of: file) == 0o640)
      #expect(try fileNames(in: folder) == ["queue.jsonl"])
      try await store.close()
    }
  }

  @Test func `verifying a file leaves no lock file behind, and keeps an existing one`()
    async throws
  {
    try await withTemporaryFolder { folder in
      let file = folder.appending(path: "queue.jsonl")
      try writeFile(try JournalText().bytes, at: file)
      #expect(try await JSONFileStore.verify(at: file).isSound)
      #expect(try fileNames(in: folder) == ["queue.jsonl"])
      let store = JSONFileStore(at: file)
      try await store.open()
      try await store.close()
      #expect(try await JSONFileStore.verify(at: file).isSound)
      #expect(try fileNames(in: folder) == ["queue.jsonl", "queue.jsonl.lock"])
    }
  }

  // MARK: URLs

  @Test(arguments: [
    "https://example.com/queue.jsonl", "file:///tmp/%FF%FE.jsonl", "queue.jsonl",
    "file:///tmp/a%00b.jsonl", "file:///tmp/a%2Fb.jsonl", "file:///tmp/a%2fb.jsonl",
  ])
  func `a URL that names no file is refused, and nothing is created`(text: String) async throws {
    let url = try #require(URL(string: text))
    let here = URL(filePath: FileManager.default.currentDirectoryPath)
    let before = try fileNames(in: here)
    for attempt in [
      { try await JSONFileStore(at: url).open() },
      { _ = try await JSONFileStore.verify(at: url) },
      { _ = try await JSONFileStore.repair(at: url) },
    ] {
      let error = try await errorThrown(by: attempt)
      #expect(error.code == .invalidURL)
      #expect(error.message.contains(text))
    }
    #expect(try fileNames(in: here).subtracting(before).filter { $0.hasPrefix(".") } == [])
  }
}
