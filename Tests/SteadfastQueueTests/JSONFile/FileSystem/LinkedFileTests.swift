import Foundation
import TestSupport
import Testing

@testable import SteadfastQueue

/// Tests a file and its lock file that have a second hard link, as some backups make it.
@Suite struct LinkedFileTests {
  @Test(arguments: [false, true])
  func `a file with a second hard link opens, and the link's contents don't change`(isTorn: Bool)
    async throws
  {
    try await withTemporaryFolder { folder in
      let file = folder.appending(path: "queue.jsonl")
      let store = JSONFileStore(at: file)
      let queue = TaskQueue(persistence: store)
      try await queue.enqueue(contentsOf: [Note("a"), Note("b")])
      // `cp -al` makes such links.
      for name in ["queue.jsonl", "queue.jsonl.lock"] {
        try FileManager.default.linkItem(
          at: folder.appending(path: name),
          to: folder.appending(path: "backup of \(name)")
        )
      }
      try await store.close()
      if isTorn {
        let handle = try FileHandle(forWritingTo: file)
        try handle.seekToEnd()
        try handle.write(contentsOf: Data("{\"c\":".utf8))
        try handle.close()
      }
      let backup = folder.appending(path: "backup of queue.jsonl")
      let linked = try Data(contentsOf: backup)
      let lock = try Data(contentsOf: folder.appending(path: "queue.jsonl.lock"))
      let again = JSONFileStore(at: file, options: JSONFileStore.Options(permissions: .group))
      let queueAgain = TaskQueue(persistence: again)
      #expect(try await queueAgain.count == 2)
      try await queueAgain.enqueue(Note("c"))
      try await again.close()
      #expect(try Data(contentsOf: backup) == linked)
      #expect(try Data(contentsOf: folder.appending(path: "queue.jsonl.lock")) == lock)
      let modes = try ["queue.jsonl", "backup of queue.jsonl", "queue.jsonl.lock"].map { name in
        try FileManager.default.attributesOfItem(
          atPath: folder.appending(path: name).path
        )[.posixPermissions] as? Int
      }
      #expect(modes == [0o660, 0o600, 0o600])
      let last = JSONFileStore(at: file)
      #expect(try await last.count(matching: TaskFilter()) == 3)
      try await last.close()
    }
  }

  @Test func `two hard links to a file can't be open at the same time`() async throws {
    try await withTemporaryFolder { folder in
      let file = folder.appending(path: "queue.jsonl")
      let store = JSONFileStore(at: file)
      try await store.open()
      let other = folder.appending(path: "other.jsonl")
      try FileManager.default.linkItem(at: file, to: other)
      let error = await #expect(throws: JSONFileError.self) {
        try await JSONFileStore(at: other).open()
      }
      #expect(error?.code == .inUse)
      try await store.close()
    }
  }
}
