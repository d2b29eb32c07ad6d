#if SQLite
import Foundation
import SteadfastQueue
import TestSupport
import Testing

@testable import SteadfastSQLite

/// Which stores may use the same tables at the same time.
struct LockTests {
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
