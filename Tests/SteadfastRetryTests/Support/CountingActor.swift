import SteadfastTesting

@testable import SteadfastRetry

final class UnsharedCount {
  var count = 0
}

/// An actor whose operations have a time limit and use its state.
actor CountingActor {
  private(set) var count = 0

  func count(_ clock: VirtualClock) async throws -> UnsharedCount {
    try await withTimeout(.seconds(5), clock: clock) {
      count += 1
      let result = UnsharedCount()
      result.count = count
      return result
    }
  }

  func countTooSlowly(_ clock: VirtualClock) async throws {
    try await withTimeout(.seconds(5), clock: clock) {
      defer { count += 1 }
      try await clock.sleep(for: .seconds(60))
    }
  }

  func result(_ clock: VirtualClock) async throws -> Int { try await count(clock).count }
}
