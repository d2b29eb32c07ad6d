import Foundation
import TestSupport
import Testing

@testable import SteadfastQueue

#if canImport(Darwin)
import Darwin
#elseif canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Android)
import Android
#endif

/// Tests lock files that change while a process tries to lock them, or that can't be written.
@Suite struct FileLockTests {
  private func open(_ path: String, _ flags: Int32 = O_RDWR | O_CREAT) throws -> FileLock.Opened {
    let descriptor = try FileStorage.openChecked(at: path, flags: flags).descriptor
    return FileLock.Opened(descriptor: descriptor, path: path)
  }

  @Test func `a lock on a lock file that was already deleted doesn't count`() async throws {
    try await withTemporaryFolder { folder in
      let path = folder.appending(path: "queue.jsonl.lock").path
      let file = try open(path)
      try FileManager.default.removeItem(atPath: path)
      #expect(try FileLock.tryToAcquire(with: file) == nil)
      let other = try open(path)
      #expect(try FileLock.tryToAcquire(with: file) == nil)
      let lock = try #require(try FileLock.tryToAcquire(with: other))
      lock.release()
      FileStorage.close(file.descriptor)
    }
  }

  /// The system often reuses the inode number of a file that was just deleted.
  @Test func `concurrent locks of short-lived files don't block each other`()
    async throws
  {
    try await withTemporaryFolder { folder in
      let failures = Log<String>()
      DispatchQueue.concurrentPerform(iterations: 4) { number in
        let path = folder.appending(path: "queue-\(number).jsonl").path
        for _ in 0..<2_000 {
          do { try FileLock.acquire(for: path).discard() } catch { failures.add("\(error)") }
        }
      }
      #expect(failures.entries == [])
    }
  }

  @Test func `a lock is valid even if the process ID of its holder can't be written`() async throws
  {
    try await withTemporaryFolder { folder in
      let path = folder.appending(path: "queue.jsonl.lock").path
      FileStorage.close(try open(path).descriptor)
      // The process ID can't be written to a read-only file, as if the disk were full.
      let lock = try #require(try FileLock.tryToAcquire(with: try open(path, O_RDONLY)))
      #expect(throws: FileLock.Failure.heldByThisProcess) {
        try FileLock.tryToAcquire(with: try open(path))
      }
      lock.release()
    }
  }

  @Test func `the error does not name a process that has ended`() async throws {
    try await withTemporaryFolder { folder in
      let path = folder.appending(path: "queue.jsonl").path
      let holder = try open(path + ".lock")
      #expect(try FileStorage.lock(holder.descriptor))
      for (number, isNamed) in [(Int32.max, false), (getpid(), true)] {
        // The file is written in place, so it is still the locked file.
        let handle = try FileHandle(forWritingTo: URL(filePath: path + ".lock"))
        try handle.truncate(atOffset: 0)
        try handle.write(contentsOf: Data("\(number)\n".utf8))
        try handle.close()
        #expect(throws: FileLock.Failure.held(by: isNamed ? number : nil)) {
          try FileLock.acquire(for: path)
        }
      }
      FileStorage.close(holder.descriptor)
    }
  }

  // MARK: The lock file's contents

  @Test func `a foreign file at the lock file's path is refused and left unchanged`()
    async throws
  {
    try await withTemporaryFolder { folder in
      let other = folder.appending(path: "jobs.lock")
      let queue = JSONFileStore(at: other)
      _ = try await queue.apply([.insert(.make(1), onDuplicate: .keep)], durability: .durable)
      try await queue.close()
      let file = folder.appending(path: "jobs")
      var text = try JournalText()
      try text.addTasks(1...2)
      try Data(text.bytes).write(to: file)
      let attempts: [() async throws -> Void] = [
        { try await JSONFileStore(at: file).open() },
        { try await JSONFileStore(at: file).destroy() },
        { _ = try await JSONFileStore.verify(at: file) },
        { _ = try await JSONFileStore.repair(at: file) },
      ]
      let tooLong = Data(repeating: UInt8(ascii: "1"), count: 33)
      for bytes in [try Data(contentsOf: other), Data("draft 1\n".utf8), tooLong] {
        try bytes.write(to: other)
        for attempt in attempts {
          let error = await #expect(throws: JSONFileError.self) { try await attempt() }
          #expect(error?.code == .unsafeFile)
          #expect(error?.message.contains("jobs.lock, can't be used: it contains") == true)
          #expect(try Data(contentsOf: other) == bytes)
        }
        let refusal = #expect(throws: FileLock.Refusal.self) {
          try FileLock.acquire(forStoreIn: file.path, named: "", isShared: true)
        }
        #expect(refusal?.isHeld == false)
        #expect(refusal?.reason.contains("jobs.lock, can't be used: it contains") == true)
        #expect(try Data(contentsOf: other) == bytes)
        #expect(try Data(contentsOf: file) == Data(text.bytes))
      }
    }
  }

  @Test(arguments: ["", "4242\n", "17\n42\n", "17\n\0\0\n", String(repeating: "1", count: 32)])
  func `the holder's process ID replaces the contents of the lock file`(text: String) async throws {
    try await withTemporaryFolder { folder in
      let path = folder.appending(path: "queue.jsonl").path
      try Data(text.utf8).write(to: URL(filePath: path + ".lock"))
      let lock = try FileLock.acquire(for: path)
      let held = try Data(contentsOf: URL(filePath: path + ".lock"))
      #expect(held == Data("\(getpid())\n".utf8))
      lock.release()
    }
  }

  // MARK: The file

  @Test func `if a file is replaced while it is being opened, the new file is opened`() async throws
  {
    try await withTemporaryFolder { folder in
      let file = folder.appending(path: "queue.jsonl")
      try Data("first".utf8).write(to: file)
      let storage = FileStorage(path: file.path)
      var attempts = 0
      let opened = try storage.openUntilInPlace(.journal) { () throws(FileOpeningError) in
        attempts += 1
        let found = try storage.open(.journal)
        if attempts == 1 {
          try? Data("second".utf8).write(to: file, options: .atomic)
        }
        return found
      }
      #expect(attempts == 2)
      #expect(try opened?.read(10, at: 0) == Array("second".utf8))
    }
  }

  @Test
  func `a file that is replaced during each attempt to open it is refused, not retried forever`()
    async throws
  {
    try await withTemporaryFolder { folder in
      let file = folder.appending(path: "queue.jsonl")
      let storage = FileStorage(path: file.path)
      #expect(throws: FileOpeningError.unstable) {
        try storage.openUntilInPlace(.journal) { () throws(FileOpeningError) in }
      }
      let errors = JSONFileErrors(url: file)
      let error = #expect(throws: JSONFileError.self) {
        try errors.translateErrors { throw FileOpeningError.unstable }
      }
      #expect(error?.code == .unsafeFile)
      #expect(error?.message.contains("local disk") == true)
    }
  }
}
