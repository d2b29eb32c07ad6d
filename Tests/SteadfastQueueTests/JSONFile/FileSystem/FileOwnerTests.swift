import Foundation
import TestSupport
import Testing

@testable import SteadfastQueue

/// Tests the owners of files that are created beside a queue's file, or that replace it.
@Suite(.enabled(if: geteuid() == 0, "only root may give files away")) struct FileOwnerTests {
  private func ownerAndGroup(of file: URL) throws -> [Int] {
    let attributes = try FileManager.default.attributesOfItem(atPath: file.path)
    return [.ownerAccountID, .groupOwnerAccountID].compactMap {
      (attributes[$0] as? NSNumber)?.intValue
    }
  }

  private func withOwnedFile(_ body: (URL) async throws -> Void) async throws {
    try await withTemporaryFolder { folder in
      let file = folder.appending(path: "queue.jsonl")
      let store = JSONFileStore(at: file)
      let queue = TaskQueue(persistence: store)
      for number in 1...5 { try await queue.enqueue(Note("\(number)")) }
      await queue.shutDown()
      try await store.close()
      try #require(unsafe chown(file.path, 65_533, 65_534) == 0)
      try FileManager.default.removeItem(atPath: file.path + ".lock")
      try await body(file)
    }
  }

  @Test func `a repaired file, its copy and its lock file keep the owner of the damaged file`()
    async throws
  {
    try await withOwnedFile { file in
      var bytes = try Data(contentsOf: file)
      bytes[bytes.count / 2] ^= 1
      let handle = try FileHandle(forWritingTo: file)
      try handle.write(contentsOf: bytes)
      try handle.close()
      let copy = try #require(try await JSONFileStore.repair(at: file).copy)
      let store = JSONFileStore(at: file)
      try await store.open()
      try await store.close()
      for file in [file, copy, URL(filePath: file.path + ".lock")] {
        #expect(try ownerAndGroup(of: file) == [65_533, 65_534], "\(file.lastPathComponent)")
      }
    }
  }

  @Test func `a compacted file keeps its owner`() async throws {
    try await withOwnedFile { file in
      let core = JSONFileCore(
        file,
        compactionPolicy: CompactionPolicy(minimumSize: 2_000, spareSize: 0)
      ) { (nil, FileStorage(path: file.path)) }
      try await core.open()
      try await core.churn(100...130)
      #expect(try await core.statistics().lastCompaction != nil)
      #expect(try ownerAndGroup(of: file) == [65_533, 65_534])
      try await core.close()
    }
  }

  private func mode(of file: URL) throws -> Int? {
    try FileManager.default.attributesOfItem(atPath: file.path)[.posixPermissions] as? Int
  }

  /// Makes a new file beside the queue's file, and gives it that file's owner and group.
  ///
  /// - Returns: The file's mode at each change of its owner or group, then its final mode; and its
  ///   URL.
  private func modes(
    beside file: URL,
    _ changeOwner: (Int32, uid_t, gid_t) -> Int32
  ) throws -> (modes: [Int?], new: URL) {
    let new = URL(filePath: file.path + ".new")
    let flags = O_RDWR | O_CREAT | O_EXCL
    let descriptor = try FileStorage.openChecked(at: new.path, flags: flags).descriptor
    defer { FileStorage.close(descriptor) }
    var modes: [Int?] = []
    let options = JSONFileStore.Options(permissions: .group)
    try FileStorage.protectNewFile(descriptor, like: nil, at: file.path, with: options) {
      modes.append(try? mode(of: new))
      return changeOwner($0, $1, $2)
    }
    return (modes + [try mode(of: new)], new)
  }

  @Test func `a new file gets its group before the group gets access`() async throws {
    try await withOwnedFile { file in
      let (modes, new) = try modes(beside: file) { fchown($0, $1, $2) }
      #expect(modes == [0o600, 0o660, 0o660])
      #expect(try ownerAndGroup(of: new) == [65_533, 65_534])
    }
  }

  @Test func `a new file whose group can't be set is accessible only to its owner`() async throws {
    try await withOwnedFile { file in
      let (modes, new) = try modes(beside: file) { _, _, _ in -1 }
      #expect(modes == [0o600, 0o600, 0o600])
      #expect(try ownerAndGroup(of: new).first == 0)
    }
  }

  @Test func `a replacement of another user's file has the chosen permissions`() async throws {
    try await withOwnedFile { file in
      let storage = FileStorage(path: file.path, JSONFileStore.Options(permissions: .group))
      let journal = try #require(try storage.open(.journal))
      defer { journal.close() }
      try storage.create(.replacement).close()
      let new = URL(filePath: file.path + ".new")
      #expect(try ownerAndGroup(of: new) == [65_533, 65_534])
      #expect(try mode(of: new) == 0o660)
    }
  }

  @Test
  func `a new file doesn't get the owner of a foreign file at the journal's path`() async throws {
    try await withOwnedFile { file in
      let storage = FileStorage(path: file.path)
      let journal = try #require(try storage.open(.journal))
      defer { journal.close() }
      try FileManager.default.moveItem(atPath: file.path, toPath: file.path + "-aside")
      try Data("mine".utf8).write(to: file)
      try #require(unsafe chown(file.path, 65_532, 65_532) == 0)
      try storage.create(.replacement).close()
      #expect(try ownerAndGroup(of: URL(filePath: file.path + ".new")) == [0, 0])
    }
  }
}
