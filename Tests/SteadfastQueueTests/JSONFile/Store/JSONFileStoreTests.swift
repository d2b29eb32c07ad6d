import Foundation
import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

@Suite struct JSONFileStoreTests {
  /// The error that opening a file throws.
  private func errorOpening(_ file: URL) async throws -> JSONFileError {
    try #require(
      await #expect(throws: JSONFileError.self) { try await JSONFileStore(at: file).open() }
    )
  }

  @Test func `a task survives the end of its queue`() async throws {
    try await withTemporaryFolder { folder in
      let file = folder.appending(path: "queue.jsonl")
      let store = JSONFileStore(at: file)
      let first = TaskQueue(persistence: store)
      let date = Date(timeIntervalSince1970: 4e9)
      let task = try await first.enqueue(
        Note("kept \"as it is\"\n\u{1F600}"),
        availableDate: date,
        maxRetries: .alwaysRetry,
        usesBackoff: false,
        priority: 7,
        uniqueKey: "a \\ key\t"
      )
      try await store.close()

      let second = TaskQueue(persistence: .jsonFile(at: file))
      let found = try #require(try await second.tasks().first)
      #expect(found.id == task.id)
      #expect(found.priority == 7)
      #expect(found.maxRetries == .alwaysRetry)
      #expect(!found.usesBackoff)
      #expect(found.uniqueKey == "a \\ key\t")
      #expect(found.availableDate == date)
      let payload = try JSONDecoder().decode(Note.self, from: Data(found.payload.bytes()))
      #expect(payload == Note("kept \"as it is\"\n\u{1F600}"))
    }
  }

  @Test func `a task that succeeded isn't performed again after a restart`() async throws {
    try await withTemporaryFolder { folder in
      let file = folder.appending(path: "queue.jsonl")
      for attempts in [1, 0] {
        let store = JSONFileStore(at: file)
        let queue = TaskQueue(persistence: store)
        await queue.register(Note.self) { _, _ in }
        let options = TaskOptions(uniqueFor: .seconds(86_400))
        try await queue.enqueue(Note("once"), uniqueKey: "once", options: options)
        #expect(try await queue.runAvailable() == attempts)
        try await store.close()
      }
    }
  }

  @Test func `the file can be opened again once its queue is deallocated`() async throws {
    try await withTemporaryFolder { folder in
      let file = folder.appending(path: "queue.jsonl")
      for count in 1...20 {
        let queue = TaskQueue(persistence: .jsonFile(at: file))
        try await queue.enqueue(Note("\(count)"))
        #expect(try await queue.count == count)
      }
    }
  }

  // MARK: Refusals

  @Test func `a second store of a file in one process is refused with the path of the file`()
    async throws
  {
    try await withTemporaryFolder { folder in
      let file = folder.appending(path: "queue.jsonl")
      let first = JSONFileStore(at: file)
      try await first.open()
      let error = try await errorOpening(file)
      #expect(error.code == .inUse)
      #expect(error.message.contains(file.path))
      try await first.close()
      try await JSONFileStore(at: file).open()
    }
  }

  @Test func `a file of another format is refused and left alone`() async throws {
    try await withTemporaryFolder { folder in
      let file = folder.appending(path: "photo.jpg")
      let contents = Data("not a queue".utf8)
      try contents.write(to: file)
      let error = try await errorOpening(file)
      #expect(error.code == .notAQueueFile)
      #expect(try Data(contentsOf: file) == contents)
    }
  }

  @Test func `a damaged file is refused and left alone`() async throws {
    try await withTemporaryFolder { folder in
      let file = folder.appending(path: "queue.jsonl")
      let store = JSONFileStore(at: file)
      let queue = TaskQueue(persistence: store)
      for number in 1...3 { try await queue.enqueue(Note("\(number)")) }
      try await store.close()
      var contents = try Data(contentsOf: file)
      contents[contents.count / 2] ^= 1
      try contents.write(to: file)
      let error = try await errorOpening(file)
      #expect(error.code == .damaged)
      #expect(try Data(contentsOf: file) == contents)
    }
  }

  @Test func `a file cut in half serves the remaining tasks`() async throws {
    try await withTemporaryFolder { folder in
      let file = folder.appending(path: "queue.jsonl")
      let store = JSONFileStore(at: file)
      let queue = TaskQueue(persistence: store)
      for number in 1...4 { try await queue.enqueue(Note("\(number)")) }
      try await store.close()
      let contents = try Data(contentsOf: file)
      try contents.prefix(contents.count / 2).write(to: file)
      let left = TaskQueue(persistence: .jsonFile(at: file))
      let count = try await left.count
      #expect((1...2).contains(count))
      try await left.enqueue(Note("another"))
      #expect(try await left.count == count + 1)
    }
  }

  @Test func `a symbolic link, a folder and a file that all users may write are refused`()
    async throws
  {
    try await withTemporaryFolder { folder in
      let file = folder.appending(path: "queue.jsonl")
      try Data().write(to: file)
      let link = folder.appending(path: "link")
      try FileManager.default.createSymbolicLink(at: link, withDestinationURL: file)
      #expect(try await errorOpening(link).code == .unsafeFile)

      let open = folder.appending(path: "open")
      try Data().write(to: open)
      try FileManager.default.setAttributes([.posixPermissions: 0o666], ofItemAtPath: open.path)
      #expect(try await errorOpening(open).code == .unsafeFile)

      let inner = folder.appending(path: "inner")
      try FileManager.default.createDirectory(at: inner, withIntermediateDirectories: false)
      #expect(try await errorOpening(inner).code == .unsafeFile)
    }
  }

  @Test func `the error for a missing folder names the path`() async throws {
    try await withTemporaryFolder { folder in
      let file = folder.appending(path: "missing/queue.jsonl")
      let error = try await errorOpening(file)
      #expect(error.message.contains("does not exist"))
      #expect(error.message.contains(file.path))
    }
  }

  @Test func `only the owner may use the file and its lock file`() async throws {
    try await withTemporaryFolder { folder in
      let file = folder.appending(path: "queue.jsonl")
      try await JSONFileStore(at: file).open()
      for name in ["queue.jsonl", "queue.jsonl.lock"] {
        let attributes = try FileManager.default.attributesOfItem(
          atPath: folder.appending(path: name).path
        )
        #expect((attributes[.posixPermissions] as? NSNumber)?.intValue == 0o600)
      }
    }
  }
}
