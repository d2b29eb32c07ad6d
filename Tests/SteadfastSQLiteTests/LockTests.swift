#if SQLite
import Foundation
import SteadfastDatabases
import SteadfastQueue
import TestSupport
import Testing

@testable import SteadfastSQLite

/// Stores that can, or can't, use the same tables at the same time.
struct LockTests {
  @Test func `a symbolic link to a database counts as the same database`() async throws {
    try await withTemporaryFolder { folder in
      let url = folder.appending(path: "db")
      let links = folder.appending(path: "links")
      try FileManager.default.createDirectory(at: links, withIntermediateDirectories: true)
      let link = links.appending(path: "link")
      try FileManager.default.createSymbolicLink(at: link, withDestinationURL: url)
      let store = SQLiteStore(at: url)
      _ = try await store.insert(.make(1))
      #expect(await SQLiteStore(at: link).openingError()?.code == .inUse)
      try await store.close()
      let other = SQLiteStore(at: link)
      #expect(try await other.count(matching: .unfinished) == 1)
      #expect(await SQLiteStore(at: url).openingError()?.code == .inUse)
    }
  }

  @Test func `a database file with a second hard link is rejected`() async throws {
    try await withTemporaryFolder { folder in
      let url = folder.appending(path: "db")
      let store = SQLiteStore(at: url)
      _ = try await store.insert(.make(1))
      let link = folder.appending(path: "link")
      try FileManager.default.linkItem(at: url, to: link)
      let error = await SQLiteStore(at: link).openingError()
      #expect(error?.code == .cannotOpen)
      #expect(error?.message.contains("it has another name") == true)
      try FileManager.default.removeItem(at: link)
      try await store.close()
      #expect(await SQLiteStore(at: url).openingError() == nil)
    }
  }

  @Test func `shared stores lock out an unshared store until the last shared store is closed`()
    async throws
  {
    try await withTemporaryFolder { folder in
      let url = folder.appending(path: "db")
      let first = SQLiteStore(at: url, sharing: StoreSharing())
      let second = SQLiteStore(at: url, sharing: StoreSharing())
      try await first.open()
      try await second.open()
      _ = try await first.insert(.make(1))
      try await first.close()
      let other = SQLiteStore(at: url)
      #expect(await other.openingError()?.code == .inUse)
      #expect(await SQLiteStore(at: url).error { try await $0.destroy() }?.code == .inUse)
      #expect(try await second.count(matching: .unfinished) == 1)
      try await second.close()
      #expect(try await other.count(matching: .unfinished) == 1)
    }
  }

  @Test func `a store that destroys its tables locks out others until the tables are removed`()
    async throws
  {
    try await withTemporaryFolder { folder in
      let url = folder.appending(path: "db")
      let store = SQLiteStore(at: url)
      let insertions = (1...500).map { TaskChange.insert(.make($0), onDuplicate: .keep) }
      _ = try await store.apply(insertions, durability: .durable)
      let path = url.path + "-steadfast.lock"
      let file = try #require(FileHandle(forUpdatingAtPath: path))
      let (starts, start) = AsyncStream<Void>.makeStream()
      // Whether the table still exists as soon as another store could get the lock.
      let (facts, fact) = AsyncStream<Bool>.makeStream()
      Thread.detachNewThread {
        let connection = try? database(at: url)
        let isThere = {
          try? connection?.hasRow("select 1 from sqlite_schema where name = 'steadfast_task'")
        }
        _ = isThere()
        start.yield()
        _ = flock(file.fileDescriptor, LOCK_EX)
        fact.yield(isThere() ?? true)
        fact.finish()
      }
      _ = await starts.first { _ in true }
      try await store.destroy()
      #expect(await facts.first { _ in true } == false)
    }
  }
}
#endif
