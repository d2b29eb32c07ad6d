import Foundation
import TestSupport
import Testing

@testable import SteadfastQueue

/// Performs random operations on one or two queues in virtual time, and compares them with a model.
///
/// Three million operations: `STEADFAST_RUNS=18800 swift test -c release -Xswiftc -enable-testing
/// --filter QueueModelTests`. `STEADFAST_SEED=17` repeats only the case with this seed.
@Suite struct QueueModelTests {
  private static let operationsInCase = 40

  /// The seeds to test: the seed in the environment, or a range.
  private static func seeds(short: Int) -> Range<UInt64> {
    if let seed = Soak.seed { return seed..<(seed + 1) }
    return 0..<UInt64(Soak.runs(short: short))
  }

  private func check(
    _ storage: ModelStorage,
    _ seeds: Range<UInt64>,
    in folder: URL? = nil
  ) async throws {
    for seed in seeds {
      let model = ModelCase(seed: seed, operations: Self.operationsInCase)
      guard let failure = await Self.failure(of: model, storage, folder) else { continue }
      let (smallest, reason) = await model.shrunk(failing: failure) {
        await Self.failure(of: $0, storage, folder)
      }
      Issue.record("over \(storage), \(smallest)\n\(reason)")
      return
    }
  }

  private static func failure(
    of model: ModelCase,
    _ storage: ModelStorage,
    _ folder: URL?
  ) async -> (any Error)? {
    do {
      let file = folder?.appending(path: UUID().uuidString)
      try await ModelRun.perform(model, storage, file: file)
      return nil
    } catch {
      return error
    }
  }

  @Test(arguments: [ModelStorage.memory, .suspending, .suspendingAtOnce, .sealed])
  func `a queue behaves like the model`(
    storage: ModelStorage
  ) async throws {
    try await check(storage, Self.seeds(short: 40))
  }

  @Test func `a queue over a file behaves like the model`() async throws {
    try await withTemporaryFolder { folder in
      let seeds = Self.seeds(short: 5)
      try await check(.file, seeds.count > 1 ? seeds.prefix(200) : seeds, in: folder)
    }
  }

  #if SQLite
  @Test func `a queue over a database behaves like the model`()
    async throws
  {
    try await withTemporaryFolder { folder in
      try await check(.database, Self.seeds(short: 20), in: folder)
    }
  }
  #endif

  #if PostgreSQL
  @Test(.enabled(if: StoreKind.postgreSQLServer != nil))
  func `a queue over a server behaves like the model`() async throws {
    try await withTemporaryFolder { folder in
      try await check(.server, Self.seeds(short: 10), in: folder)
    }
  }
  #endif
}
