import Foundation
import SteadfastTesting
import TestSupport

@testable import SteadfastQueue

#if SQLite
import SteadfastSQLite
#endif
#if PostgreSQL
import SteadfastPostgreSQL
#endif

/// The kinds of stores on which queues must behave the same.
enum StoreKind: CaseIterable {
  case memory, file, sealedMemory, sealedFile
  #if SQLite
  case sqlite, sharedSQLite

  #endif
  #if PostgreSQL
  case postgreSQL, sharedPostgreSQL
  #endif

  /// The stores to test.
  ///
  /// With a package trait, these are only the stores that the trait adds, because a run without the
  /// trait tests the others. The connection string of a PostgreSQL server is in
  /// `STEADFAST_POSTGRESQL`.
  static var allCases: [StoreKind] {
    var added: [StoreKind] = []
    #if SQLite
    added += [.sqlite, .sharedSQLite]
    #endif
    #if PostgreSQL
    if postgreSQLServer != nil { added += [.postgreSQL, .sharedPostgreSQL] }
    #endif
    return added.isEmpty ? [.memory, .file, .sealedMemory, .sealedFile] : added
  }

  func withStore<Result>(
    _ body: (any Persistence) async throws -> Result
  ) async throws -> Result {
    switch self {
    case .memory: return try await body(InMemoryStore())
    case .sealedMemory:
      return try await body(InMemoryStore().sealingPayloads(with: TestSeal().payloadSeal))
    case .sealedFile:
      return try await Self.file.withStore { store in
        try await body(store.sealingPayloads(with: TestSeal().payloadSeal))
      }
    case .file:
      return try await withTemporaryFolder { folder in
        let store = JSONFileStore(at: folder.appending(path: "queue"))
        let result = try await body(store)
        // A test that has destroyed the store has also closed it.
        try? await store.close()
        return result
      }
    #if SQLite
    case .sqlite: return try await Self.withSQLite(sharing: nil, body)
    case .sharedSQLite: return try await Self.withSQLite(sharing: Self.longSharing, body)
    #endif
    #if PostgreSQL
    case .postgreSQL: return try await Self.withPostgreSQL(sharing: nil, body)
    case .sharedPostgreSQL: return try await Self.withPostgreSQL(sharing: Self.longSharing, body)
    #endif
    }
  }

  /// Intervals so long that no test depends on when a queue extends its leases or polls for tasks.
  private static let longSharing = StoreSharing(
    leaseDuration: .seconds(864_000),
    pollInterval: .seconds(864_000)
  )

  #if PostgreSQL
  /// The connection string of the server for tests; `nil` if there is none.
  static let postgreSQLServer = ProcessInfo.processInfo.environment["STEADFAST_POSTGRESQL"]

  private static func withPostgreSQL<Result>(
    sharing: StoreSharing?,
    _ body: (any Persistence) async throws -> Result
  ) async throws -> Result {
    // In virtual time, leases expire by the virtual clock.
    let clock = VirtualTime.current?.clock
    let store = PostgreSQLStore(
      postgreSQLServer ?? "",
      prefix: "kind_" + String(UInt64.random(in: 0...UInt64.max), radix: 16),
      sharing: sharing
    ) {
      .seconds((clock?.date ?? Date()).timeIntervalSince(Date()))
    }
    let result = try await body(store)
    // The test may have destroyed or closed the store.
    try? await store.destroy()
    return result
  }
  #endif

  #if SQLite
  private static func withSQLite<Result>(
    sharing: StoreSharing?,
    _ body: (any Persistence) async throws -> Result
  ) async throws -> Result {
    try await withTemporaryFolder { folder in
      // In virtual time, leases expire by the virtual clock.
      let clock = VirtualTime.current?.clock
      let store = SQLiteStore(at: folder.appending(path: "queue"), sharing: sharing) {
        (clock?.date ?? Date()).timeIntervalSince1970
      }
      let result = try await body(store)
      try? await store.close()
      return result
    }
  }
  #endif
}
