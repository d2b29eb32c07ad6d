#if SQLite
import Foundation
import SteadfastQueue
import TestSupport
import Testing

@testable import SteadfastSQLite

/// Which stores may use the same tables at the same time.
struct LockTests {
  @Test func `a symbolic link to a database is no other database`() async throws {
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

  @Test func `a database with two names is refused`() async throws {
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

  @Test func `shared stores keep one that is not shared out until the last is closed`()
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
}
#endif
