import Foundation
import SteadfastTesting
import Synchronization

/// A connection that takes a lost answer for success.
struct SwallowingStore: WrappingStore {
  let base: any Persistence

  init(_ base: any Persistence) { self.base = base }

  func apply(_ batch: [TaskChange], durability: Durability) async throws -> [ChangeOutcome] {
    do {
      return try await base.apply(batch, durability: durability)
    } catch is TransientFault {
      return batch.map { _ in .done }
    }
  }
}

/// A connection that acknowledges insertions, and sends them with the next claim.
final class LateStore: WrappingStore {
  let base: any Persistence
  private let waiting = Mutex<[[TaskChange]]>([])

  init(_ base: any Persistence) { self.base = base }

  func apply(_ batch: [TaskChange], durability: Durability) async throws -> [ChangeOutcome] {
    let areInsertions = batch.allSatisfy { if case .insert = $0 { true } else { false } }
    guard areInsertions else { return try await base.apply(batch, durability: durability) }
    waiting.withLock { $0.append(batch) }
    return batch.map { _ in .done }
  }

  func claim(_ request: ClaimRequest) async throws -> Claim {
    while let batch = waiting.withLock({ $0.first }) {
      _ = try await base.apply(batch, durability: .durable)
      waiting.withLock { $0 = Array($0.dropFirst()) }
    }
    return try await base.claim(request)
  }
}

/// A connection that is lost long after each first insertion was carried out.
final class LateAnswers: WrappingStore {
  let base: any Persistence
  private let clock: VirtualClock
  private let sent = Mutex<Set<TaskID>>([])

  init(_ base: any Persistence, _ clock: VirtualClock) {
    self.base = base
    self.clock = clock
  }

  func apply(_ batch: [TaskChange], durability: Durability) async throws -> [ChangeOutcome] {
    let outcomes = try await base.apply(batch, durability: durability)
    let isFirst = batch.contains { change in
      guard case .insert(let record, _) = change else { return false }
      return sent.withLock { $0.insert(record.id).inserted }
    }
    guard isFirst else { return outcomes }
    try await clock.sleep(for: .seconds(60))
    throw TransientFault()
  }
}

/// A store whose calls take time after a great number of them.
///
/// A broken store may make a queue ask again and again, and then no time would ever pass.
final class BrakedStore: WrappingStore {
  let base: any Persistence
  private let clock: VirtualClock
  private let calls = Mutex(0)
  private static let mostCalls = 5000

  init(_ base: any Persistence, _ clock: VirtualClock) {
    self.base = base
    self.clock = clock
  }

  private func brake() async throws {
    let count = calls.withLock { calls in
      calls += 1
      return calls
    }
    if count > Self.mostCalls { try await clock.sleep(for: .seconds(1)) }
  }

  func apply(_ batch: [TaskChange], durability: Durability) async throws -> [ChangeOutcome] {
    try await brake()
    return try await base.apply(batch, durability: durability)
  }

  func claim(_ request: ClaimRequest) async throws -> Claim {
    try await brake()
    return try await base.claim(request)
  }
}

/// A store that passes on what it does not do itself.
protocol WrappingStore: Persistence {
  var base: any Persistence { get }
}

extension WrappingStore {
  var sharing: StoreSharing? { base.sharing }

  func open() async throws { try await base.open() }

  func claim(_ request: ClaimRequest) async throws -> Claim { try await base.claim(request) }

  func tasks(
    matching filter: TaskFilter,
    after id: TaskID?,
    limit: Int
  ) async throws -> [TaskRecord] {
    try await base.tasks(matching: filter, after: id, limit: limit)
  }

  func count(matching filter: TaskFilter) async throws -> Int {
    try await base.count(matching: filter)
  }

  func value(named name: String) async throws -> [UInt8]? { try await base.value(named: name) }
  func memory(of id: TaskID) async throws -> TaskMemory { try await base.memory(of: id) }
  func close() async throws { try await base.close() }
  func destroy() async throws { try await base.destroy() }
}
