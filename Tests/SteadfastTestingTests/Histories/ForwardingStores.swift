import Foundation
import SteadfastTesting
import Synchronization
import TestSupport

/// A connection that treats a lost response as success.
struct SwallowingStore: ForwardingStore {
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

/// A connection that acknowledges insertions at once, but sends them only with the next claim.
final class LateStore: ForwardingStore {
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

/// A connection that fails a minute after the store has applied the first insertion of a task.
final class LateAnswers: ForwardingStore {
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

/// A store whose calls take time once it has received many calls.
///
/// A broken store can make a queue call the store in an endless loop, in which no virtual time
/// passes.
final class BrakedStore: ForwardingStore {
  let base: any Persistence
  private let clock: VirtualClock
  private let calls = Counter()
  private static let mostCalls = 5000

  init(_ base: any Persistence, _ clock: VirtualClock) {
    self.base = base
    self.clock = clock
  }

  private func waitIfCalledOften() async throws {
    if calls.add(1) > Self.mostCalls { try await clock.sleep(for: .seconds(1)) }
  }

  func apply(_ batch: [TaskChange], durability: Durability) async throws -> [ChangeOutcome] {
    try await waitIfCalledOften()
    return try await base.apply(batch, durability: durability)
  }

  func claim(_ request: ClaimRequest) async throws -> Claim {
    try await waitIfCalledOften()
    return try await base.claim(request)
  }
}
