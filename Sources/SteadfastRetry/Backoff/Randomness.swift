/// Where random numbers come from: the system, or a seed for the same numbers each time.
@nonexhaustive
public enum Randomness: Sendable, Hashable {
  /// Different numbers each time.
  case system
  /// The same numbers for the same seed, for tests and reproductions.
  case seeded(UInt64)

  /// Makes a cheap generator that is statistically good, but not for cryptography.
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

/// A generator that is made when the first number is drawn; backoff without jitter draws none.
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
