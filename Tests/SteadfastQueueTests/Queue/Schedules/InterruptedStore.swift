import Synchronization
import TestSupport

@testable import SteadfastQueue

/// A store that records its batches, and runs an action before the next one.
final class InterruptedStore: ForwardingStore {
  let base: any Persistence
  let appliesAtOnce = true
  private let next = Mutex<(@Sendable () async throws -> Void)?>(nil)
  private let recorded = Mutex<[(changes: [TaskChange], durability: Durability)]>([])

  init(_ base: any Persistence) { self.base = base }

  func beforeNextBatch(_ body: @escaping @Sendable () async throws -> Void) {
    next.withLock { $0 = body }
  }

  /// The durability of each batch that sets a value.
  var durabilitiesOfValues: [Durability] {
    recorded.withLock { $0.filter { $0.changes.contains("setValue") }.map(\.durability) }
  }

  func apply(_ batch: [TaskChange], durability: Durability) async throws -> [ChangeOutcome] {
    recorded.withLock { $0.append((batch, durability)) }
    let body = next.withLock { next in
      defer { next = nil }
      return next
    }
    try await body?()
    return try await base.apply(batch, durability: durability)
  }
}
