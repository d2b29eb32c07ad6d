import Testing

@testable import SteadfastRetry

@Suite struct JitterTests {
  @Test(arguments: [
    (Jitter.full, 0.0, 10.0), (.equal, 5, 10), (.proportional(0.5), 5, 15),
    (.proportional(0.1), 9, 11), (.proportional(1), 0, 20), (.proportional(7), 0, 20),
    (.decorrelated, 10, 60),
  ])
  func `a hundred thousand delays have the expected distribution`(
    jitter: Jitter,
    lower: Double,
    upper: Double
  ) {
    let spread = Spread(
      of: .constant(.seconds(10)).jittered(jitter),
      after: RetryAttempt(number: 2, delay: .seconds(20)),
      count: 100_000,
      between: lower,
      and: upper
    )
    let expectedVariance = (upper - lower) * (upper - lower) / 12
    #expect(spread.least >= lower && spread.most <= upper)
    #expect(abs(spread.mean / ((lower + upper) / 2) - 1) < 0.01)
    #expect(abs(spread.variance / expectedVariance - 1) < 0.01)
    #expect(spread.unevenness < 27.9)
  }

  @Test(arguments: [
    (Jitter.full, 0.0), (.equal, 30), (.proportional(0.5), 30), (.proportional(0.1), 54),
    (.decorrelated, 1),
  ])
  func `with jitter, delays that reach the cap spread evenly below the cap`(
    jitter: Jitter,
    lower: Double
  ) {
    let spread = Spread(
      of: .exponential(from: .seconds(1)).jittered(jitter).capped(at: .seconds(60)),
      after: RetryAttempt(number: 1000, delay: .seconds(60)),
      count: 10_000,
      between: lower,
      and: 60
    )
    #expect(spread.least >= lower && spread.most <= 60)
    #expect(spread.unevenness < 27.9)
  }

  @Test(arguments: [Jitter.proportional(0), .proportional(.nan), .proportional(-1)])
  func `proportional jitter with a factor of zero or less adds no jitter`(jitter: Jitter) {
    let backoff = Backoff.constant(.seconds(10)).jittered(jitter)
    #expect(Set(backoff.delays(first: 100)) == [.seconds(10)])
  }

  @Test func `the first decorrelated delay is random too`() {
    let (lower, upper) = Jitter.decorrelated.bounds(of: 10, first: 10, previous: 0)
    #expect(lower == 10 && upper == 30)
  }

  @Test func `adding jitter before or after a cap gives the same delays`() {
    let shape = Backoff.exponential(from: .seconds(1))
    #expect(
      shape.jittered(.full).capped(at: .seconds(9)).delays(first: 20, randomness: .seeded(1))
        == shape.capped(at: .seconds(9)).jittered(.full).delays(first: 20, randomness: .seeded(1))
    )
  }

  @Test func `each decorrelated delay derives from the previous delay after the cap`() {
    let backoff = Backoff.constant(.seconds(1)).jittered(.decorrelated).capped(at: .seconds(20))
    let delays = backoff.delays(first: 5_000, randomness: .seeded(5)).map { $0 / .seconds(1) }
    let isInBounds = zip([1] + delays, delays).map { $1 >= 1 && $1 <= min($0 * 3, 20) }
    #expect(!isInBounds.contains(false))
    // A delay is at most three times the previous capped delay. If it derived from the previous
    // delay before the cap, it could be much longer.
    let afterShort = zip(delays, delays.dropFirst()).filter { $0.0 < 2 }.map(\.1)
    #expect(afterShort.count > 100 && afterShort.allSatisfy { $0 <= 6 })
  }

  // The formula of Google's client: next_interval = interval × (random value in [1 − r, 1 + r]),
  // where the interval grows by half each time, up to 60 s.
  @Test(arguments: 1...20)
  func `the default delays have the mean and the bounds of the formula of Google's client`(
    number: Int
  ) {
    let interval = (1..<number).reduce(0.5) { interval, _ in min(interval * 1.5, 60) }
    let (lower, upper) = (interval * 0.5, min(interval * 1.5, 60))
    let spread = Spread(
      of: .default,
      after: RetryAttempt(number: number),
      count: 10_000,
      between: lower,
      and: upper
    )
    #expect(spread.least >= lower - 1e-9 && spread.least < lower * 1.01)
    #expect(spread.most <= upper + 1e-9 && spread.most > upper * 0.99)
    #expect(abs(spread.mean / ((lower + upper) / 2) - 1) < 0.01)
    if interval * 1.5 <= 60 { #expect(abs(spread.mean / interval - 1) < 0.01) }
  }
}
