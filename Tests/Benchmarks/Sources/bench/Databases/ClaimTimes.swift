import Foundation
import SteadfastQueue
import Synchronization

/// A store that forwards all calls to another store, and measures the duration of each claim.
final class ClaimTimes: Persistence {
  private let base: any Persistence
  private let times = Mutex<[Double]>([])

  init(_ base: any Persistence) { self.base = base }

  var claimBatch: Int { base.claimBatch }
  var sharing: StoreSharing? { base.sharing }
  var hasOneClock: Bool { base.hasOneClock }
  var hints: AsyncStream<Void>? { base.hints }

  /// Returns, and removes, the durations of the claims since the last call, in microseconds.
  func takeTimes() -> [Double] {
    times.withLock { times in
      defer { times = [] }
      return times
    }
  }

  func open() async throws { try await base.open() }

  func claim(_ request: ClaimRequest) async throws -> Claim {
    let start = ContinuousClock.now
    let claim = try await base.claim(request)
    let time = start.duration(to: .now) / .microseconds(1)
    times.withLock { $0.append(time) }
    return claim
  }

  func apply(_ batch: [TaskChange], durability: Durability) async throws -> [ChangeOutcome] {
    try await base.apply(batch, durability: durability)
  }

  func census(at now: Date) async throws -> TaskCensus { try await base.census(at: now) }

  func value(named name: String) async throws -> [UInt8]? { try await base.value(named: name) }

  func values(prefix: String) async throws -> [(name: String, bytes: [UInt8])] {
    try await base.values(prefix: prefix)
  }

  func memory(of id: TaskID) async throws -> TaskMemory { try await base.memory(of: id) }

  func tasks(
    matching filter: TaskFilter,
    after id: TaskID?,
    limit: Int,
    newestFirst: Bool
  ) async throws -> [TaskRecord] {
    try await base.tasks(matching: filter, after: id, limit: limit, newestFirst: newestFirst)
  }

  func count(matching filter: TaskFilter) async throws -> Int {
    try await base.count(matching: filter)
  }

  func close() async throws { try await base.close() }

  func destroy() async throws { try await base.destroy() }
}
