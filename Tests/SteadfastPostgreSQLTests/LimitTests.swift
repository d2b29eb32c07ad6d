#if PostgreSQL
import Foundation
import SteadfastDatabases
import SteadfastQueue
import SteadfastRetry
import Testing

@testable import SteadfastPostgreSQL

/// Values that are too long or too large for the server.
@Suite(.onServer)
struct LimitTests {
  /// Returns a string that the server can't compress.
  private func randomString(ofLength count: Int) -> String {
    var random = SplitMix64(seed: UInt64(count))
    let bytes = (0..<count).map { _ in UInt8.random(in: 0x21...0x7E, using: &random) }
    return String(decoding: bytes, as: UTF8.self)
  }

  @Test func `a name and a key can have 2600 bytes together, and longer ones are rejected`()
    async throws
  {
    try await withTables { tables in
      let store = tables.store()
      let longest = TaskRecord.numbered(
        1,
        name: randomString(ofLength: 1_000),
        uniqueKey: randomString(ofLength: 1_600),
        orderKey: randomString(ofLength: 2_600)
      )
      #expect(try await store.insert(longest) == [.done])
      for record in [
        TaskRecord.numbered(2, uniqueKey: randomString(ofLength: 2_800)),
        .numbered(3, orderKey: randomString(ofLength: 2_800)),
        .numbered(4, name: randomString(ofLength: 2_800)),
      ] {
        let error = await store.error { _ = try await $0.insert(.numbered(5), record) }
        #expect(error?.code == .refused)
        #expect(error?.isTransient == false)
        #expect(error?.message.contains("a key is too long") == true)
      }
      #expect(try await store.tasks(matching: TaskFilter()).map(\.id) == [longest.id])
      try await store.close()
    }
  }

  @Test func `values that are too large for a message are rejected, and the session continues`()
    async throws
  {
    try await withTables { tables in
      let database = try tables.database()
      database.mostBytes = 1_000
      let bytes = SQLValue.bytes([UInt8](repeating: 7, count: 500))
      let both = SQLValue.array([bytes, bytes], of: .bytes)
      for values in [[bytes, .array([bytes], of: .bytes)], [.null, both]] {
        let failure = try #require(throws: PostgreSQLFailure.self) {
          try database.send("select $1::bytea, $2::bytea[]", values, isWanted: true)
        }
        #expect(!failure.isConnectionLost)
        let error = DatabaseLocation(tables.connection).storeError(for: failure)
        #expect(error.code == .refused)
        #expect(!error.isTransient)
        #expect(error.message.contains("less than 1 GiB"))
      }
      try database.flush()
      #expect(try database.hasRow("select $1::bytea, $2::bytea", bytes, bytes))
    }
  }
}
#endif
