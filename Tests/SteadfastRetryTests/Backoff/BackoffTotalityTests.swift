import Testing

@testable import SteadfastRetry

/// Tests that a backoff returns a valid delay for every attempt, with any parameters.
@Suite struct BackoffTotalityTests {
  private static let attempts = [1, 2, 3, 10, 64, 93, 200, 1024, 1_000_000_000, .max]
  private static let bases: [Duration] = [
    .zero, .nanoseconds(1), .seconds(1), .seconds(86_400), Duration(attoseconds: .max),
    Duration(attoseconds: 1), .seconds(-5), Duration(attoseconds: .min),
  ]
  private static let multipliers = [
    0, 0.5, 1, 1.5, 2, 1e300, .nan, -1, .infinity, -.infinity, .leastNonzeroMagnitude,
  ]
  private static let jitters: [Jitter?] = [
    nil, .full, .equal, .decorrelated, .proportional(0.5), .proportional(1),
    .proportional(1e300), .proportional(.nan), .proportional(-1),
  ]
  private static let caps: [Duration?] = [
    nil, .zero, .nanoseconds(1), .seconds(60), Duration(attoseconds: .max), .seconds(-1),
  ]

  private static func shapes(base: Duration, multiplier: Double) -> [Backoff] {
    [
      .constant(base), .linear(from: base, by: base), .linear(from: .seconds(1), by: base),
      .exponential(from: base, multiplier: multiplier), .fibonacci(from: base),
      .custom { _ in base },
    ]
  }

  /// Returns copies of a backoff with each combination of jitter and cap.
  private static func withJittersAndCaps(_ shape: Backoff) -> [Backoff] {
    jitters.flatMap { jitter in
      let jittered = jitter.map(shape.jittered) ?? shape
      return caps.map { cap in cap.map(jittered.capped) ?? jittered }
    }
  }

  @Test(arguments: bases, multipliers)
  func `computing a delay never traps, and no delay is negative or exceeds the cap`(
    base: Duration,
    multiplier: Double
  ) {
    var generator = SplitMix64(seed: 7)
    let shapes = Self.shapes(base: base, multiplier: multiplier)
    for backoff in shapes.flatMap(Self.withJittersAndCaps) {
      for number in Self.attempts {
        for previous in [Duration.zero, base] {
          let attempt = RetryAttempt(number: number, delay: previous)
          let delay = backoff.delay(after: attempt, using: &generator)
          if delay < .zero || delay > max(backoff.cap ?? .longest, .zero) {
            Issue.record("\(backoff) gives \(delay) after attempt \(number)")
          }
        }
      }
    }
  }

  @Test(arguments: bases, [1, 1.000_000_001, 1.001, 1.1, 1.5, 2, 1e300, .infinity])
  func `without jitter, delays never decrease`(
    base: Duration,
    multiplier: Double
  ) {
    var random = SplitMix64(seed: 3)
    let pairs = (0..<300).flatMap { _ in
      let number = Int.random(in: 1..<1_000_000_000, using: &random)
      return [number, number + 1]
    }
    let shapes = [
      Backoff.constant(base), .linear(from: base, by: max(base, .zero)),
      .exponential(from: base, multiplier: multiplier), .fibonacci(from: base),
    ]
    for backoff in shapes + shapes.map({ $0.capped(at: .seconds(60)) }) {
      let delays = (Array(1...300) + pairs.sorted() + [.max - 1, .max]).map {
        backoff.delay(after: RetryAttempt(number: $0), using: &random)
      }
      #expect(zip(delays, delays.dropFirst()).allSatisfy { $0 <= $1 }, "\(backoff)")
    }
  }

  // If the multiplier is close to 1, a delay may grow by less than a rounding error.
  @Test(arguments: [52, 51, 50, 48, 44, 40, 39, 36].map { bits in 1 + 1 / Double(1 << bits) })
  func `without jitter, delays never decrease even if the multiplier is close to 1`(
    multiplier: Double
  ) {
    let backoff = Backoff.exponential(from: .seconds(31_536_000), multiplier: multiplier)
    var generator = SplitMix64(seed: 1)
    for number in (4...55).flatMap({ bits in [-1, 0, 1].map { (1 << bits) + $0 } }) {
      let delays = [number, number + 1].map {
        backoff.delay(after: RetryAttempt(number: $0), using: &generator)
      }
      #expect(delays[0] <= delays[1], "after attempt \(number)")
    }
  }

  @Test(arguments: [
    Backoff.linear(from: .seconds(1), by: .seconds(1)), .fibonacci(from: .nanoseconds(1)),
    .exponential(from: .nanoseconds(1), multiplier: 1.5), .constant(Duration(attoseconds: .max)),
    .exponential(from: Duration(attoseconds: .max), multiplier: 1.5),
  ])
  func `delays that grow reach a value near the longest duration without overflow`(
    backoff: Backoff
  ) {
    var generator = SplitMix64(seed: 1)
    let attempt = RetryAttempt(number: .max)
    #expect(backoff.delay(after: attempt, using: &generator) > .seconds(1 << 62))
    let jittered = backoff.jittered(.proportional(0.5))
    #expect(jittered.delay(after: attempt, using: &generator) > .seconds(1 << 61))
  }
}
