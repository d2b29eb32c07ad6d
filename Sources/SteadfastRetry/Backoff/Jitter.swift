/// How delays are randomized, so that many callers do not all retry at once.
///
/// The delay is drawn evenly between two bounds. If the upper bound is above the backoff's cap, the
/// delay is drawn between the lower bound and the cap: no delay exceeds the cap, and delays near
/// the cap are randomized, too. "Full", "equal" and "decorrelated" are the terms of Marc Brooker,
/// "Exponential Backoff and Jitter" (AWS Architecture Blog, 2015).
@nonexhaustive
public enum Jitter: Sendable, Hashable {
  /// Between zero and the interval.
  case full
  /// Between half of the interval and the whole interval.
  case equal
  /// Between interval × (1 − factor) and interval × (1 + factor).
  ///
  /// A factor that is below 0, or is not a number, counts as 0; a factor above 1 counts as 1.
  case proportional(Double)
  /// Between the backoff's first interval and three times the previous delay.
  ///
  /// The backoff's later intervals are not used. On average, each delay is longer than the previous
  /// one by half.
  case decorrelated

  /// Returns the bounds, in nanoseconds, between which the delay is drawn.
  ///
  /// `first` is the backoff's first interval, and `previous` is the previous delay. No argument is
  /// negative.
  func bounds(
    of interval: Int128,
    first: @autoclosure () -> Int128,
    previous: Int128
  ) -> (lower: Int128, upper: Int128) {
    switch self {
    case .full: return (0, interval)
    case .equal: return (interval / 2, interval)
    case .proportional(let factor):
      let counted = factor.isNaN ? 0 : min(max(factor, 0), 1)
      let spread = min(Int128(wholePart: Double(approximating: interval) * counted), interval)
      return (interval - spread, interval + spread)
    case .decorrelated:
      let first = first()
      return (first, max(first, previous) * 3)
    }
  }
}

/// The source of random numbers: the system, or a seed that gives the same numbers each time.
@nonexhaustive
public enum Randomness: Sendable, Hashable {
  /// Different numbers each time.
  case system
  /// The same numbers for the same seed, for tests and reproductions.
  case seeded(UInt64)

  /// Makes a fast generator that is statistically good, but not for cryptography.
  package func makeGenerator() -> SplitMix64 {
    switch self {
    case .system:
      var system = SystemRandomNumberGenerator()
      return SplitMix64(seed: system.next())
    case .seeded(let seed):
      return SplitMix64(seed: seed)
    }
  }
}

/// The generator of Steele, Lea and Flood, "Fast splittable pseudorandom number generators"
/// (OOPSLA 2014): one addition and a mix for each number.
package struct SplitMix64: RandomNumberGenerator, Sendable {
  private var state: UInt64

  package init(seed: UInt64) { state = seed }

  package mutating func next() -> UInt64 {
    state &+= 0x9E37_79B9_7F4A_7C15
    var mixed = state
    mixed = (mixed ^ (mixed >> 30)) &* 0xBF58_476D_1CE4_E5B9
    mixed = (mixed ^ (mixed >> 27)) &* 0x94D0_49BB_1331_11EB
    return mixed ^ (mixed >> 31)
  }
}

/// A generator that is made when the first number is drawn, because backoff without jitter draws
/// none.
struct LazyGenerator: RandomNumberGenerator {
  private let randomness: Randomness
  private var generator: SplitMix64?

  init(_ randomness: Randomness) { self.randomness = randomness }

  mutating func next() -> UInt64 {
    var generator = generator ?? randomness.makeGenerator()
    defer { self.generator = generator }
    return generator.next()
  }
}
