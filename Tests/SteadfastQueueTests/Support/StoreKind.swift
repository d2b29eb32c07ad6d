import Foundation
import TestSupport

@testable import SteadfastQueue

/// The stores on which control must have the same effect.
enum StoreKind: CaseIterable {
  case memory, file, sealedMemory, sealedFile

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
    }
  }
}
