import SteadfastTesting

@testable import SteadfastRetry

final class UnsharedCount {
  var count = 0
}

/// An actor whose operations have a time limit, and use the state of the actor.
actor CountingActor {
  private(set) var count = 0

  /// Increments the count, and returns a copy of the count that is not sendable.
  func incrementCount(on clock: VirtualClock) async throws -> UnsharedCount {
    try await withTimeout(.seconds(5), clock: clock) {
      count += 1
      let result = UnsharedCount()
      result.count = count
      return result
    }
  }

  /// Increments the count after the time limit has expired.
  func incrementTooSlowly(on clock: VirtualClock) async throws {
    try await withTimeout(.seconds(5), clock: clock) {
      defer { count += 1 }
      try await clock.sleep(for: .seconds(60))
    }
  }

  func countAfterIncrement(on clock: VirtualClock) async throws -> Int {
    try await incrementCount(on: clock).count
  }
}
