import Synchronization
import TestSupport

@testable import SteadfastQueue

/// A store that runs an action before the next batch.
final class InterruptedStore: ForwardingStore {
  let base: any Persistence
  let appliesAtOnce = true
  private let next = Mutex<(@Sendable () async throws -> Void)?>(nil)

  init(_ base: any Persistence) { self.base = base }

  func beforeNextBatch(_ body: @escaping @Sendable () async throws -> Void) {
    next.withLock { $0 = body }
  }

  func apply(_ batch: [TaskChange], durability: Durability) async throws -> [ChangeOutcome] {
    let body = next.withLock { next in
      defer { next = nil }
      return next
    }
    try await body?()
    return try await base.apply(batch, durability: durability)
  }
}
