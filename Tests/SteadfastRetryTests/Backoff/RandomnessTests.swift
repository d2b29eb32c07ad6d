import Testing

@testable import SteadfastRetry

@Suite struct RandomnessTests {
  @Test func `the same seed gives the same numbers`() {
    var first = Randomness.seeded(42).makeGenerator()
    var second = Randomness.seeded(42).makeGenerator()
    #expect((0..<100).map { _ in first.next() } == (0..<100).map { _ in second.next() })
  }

  @Test func `different seeds give different numbers`() {
    var first = Randomness.seeded(1).makeGenerator()
    var second = Randomness.seeded(2).makeGenerator()
    #expect((0..<4).map { _ in first.next() } != (0..<4).map { _ in second.next() })
  }

  @Test func `the generator gives the numbers of the reference code in the SplitMix64 paper`() {
    var generator = SplitMix64(seed: 1_234_567)
    #expect(generator.next() == 6_457_827_717_110_365_317)
    #expect(generator.next() == 3_203_168_211_198_807_973)
  }
}
