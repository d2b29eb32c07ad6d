import Foundation
import SteadfastQueue
import Synchronization

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Android)
import Android
#else
import Darwin
#endif

/// A store in memory that measures the processor time of each batch of many changes, and of each
/// page of tasks.
///
/// The processor time is an upper bound of the time for which a call holds a lock.
///
/// The store never suspends, so that a single thread performs the whole call.
final class TimedStore: Persistence {
  private let base = InMemoryStore()
  private let changes = Mutex<[Double]>([])
  private let pages = Mutex<[Double]>([])

  var appliesAtOnce: Bool { true }

  /// Returns, and removes, the processor times of the batches since the last call, in milliseconds.
  func takeChanges() -> [Double] { Self.removeAll(from: changes) }
  /// Returns, and removes, the processor times of the pages since the last call, in milliseconds.
  func takePages() -> [Double] { Self.removeAll(from: pages) }

  private static func removeAll(from times: borrowing Mutex<[Double]>) -> [Double] {
    times.withLock { times in
      defer { times = [] }
      return times
    }
  }

  func apply(_ batch: [TaskChange], durability: Durability) async throws -> [ChangeOutcome] {
    guard batch.count > 1 else { return try await base.apply(batch, durability: durability) }
    let start = Self.threadTime
    let outcomes = try await base.apply(batch, durability: durability)
    let time = Self.threadTime - start
    changes.withLock { $0.append(time) }
    return outcomes
  }

  private static var threadTime: Double {
    var time = timespec()
    unsafe clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time)
    return Double(time.tv_sec) * 1e3 + Double(time.tv_nsec) / 1e6
  }

  func claim(_ request: ClaimRequest) async throws -> Claim { try await base.claim(request) }

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
    guard limit > 1 else {
      return try await base.tasks(
        matching: filter,
        after: id,
        limit: limit,
        newestFirst: newestFirst
      )
    }
    let start = Self.threadTime
    let page = try await base.tasks(
      matching: filter,
      after: id,
      limit: limit,
      newestFirst: newestFirst
    )
    let time = Self.threadTime - start
    pages.withLock { $0.append(time) }
    return page
  }

  func count(matching filter: TaskFilter) async throws -> Int {
    try await base.count(matching: filter)
  }

  func destroy() async throws { try await base.destroy() }
}
