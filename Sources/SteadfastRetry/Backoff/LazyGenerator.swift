/// A generator that is made when the first number is drawn: backoff without jitter draws none.
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
