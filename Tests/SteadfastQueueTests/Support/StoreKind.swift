import Foundation
import SteadfastTesting
import TestSupport

@testable import SteadfastQueue

#if SQLite
import SteadfastSQLite
#endif

/// The stores on which control must have the same effect.
enum StoreKind: CaseIterable {
  case memory, file, sealedMemory, sealedFile
  #if SQLite
  case sqlite, sharedSQLite

  /// With the trait, only the stores that it adds: the others are tested without it.
  static let allCases: [StoreKind] = [.sqlite, .sharedSQLite]
  #endif

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
        // A test that destroyed it has closed it.
        try? await store.close()
        return result
      }
    #if SQLite
    case .sqlite: return try await Self.withSQLite(sharing: nil, body)
    case .sharedSQLite:
      // So long that no test sees how often the queue extends its claims, and looks for tasks.
      let sharing = StoreSharing(leaseDuration: .seconds(864_000), pollInterval: .seconds(864_000))
      return try await Self.withSQLite(sharing: sharing, body)
    #endif
    }
  }

  #if SQLite
  private static func withSQLite<Result>(
    sharing: StoreSharing?,
    _ body: (any Persistence) async throws -> Result
  ) async throws -> Result {
    try await withTemporaryFolder { folder in
      // In virtual time, claims run out by its clock.
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
