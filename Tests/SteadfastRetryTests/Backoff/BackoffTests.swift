import Testing

@testable import SteadfastRetry

@Suite struct BackoffTests {
  @Test(arguments: [
    (Backoff.immediate, [0, 0, 0, 0, 0]),
    (.constant(.seconds(3)), [3, 3, 3, 3, 3]),
    (.constant(.seconds(-3)), [0, 0, 0, 0, 0]),
    (.linear(from: .seconds(1), by: .seconds(2)), [1, 3, 5, 7, 9]),
    (.linear(from: .seconds(3), by: .seconds(-1)), [3, 2, 1, 0, 0]),
    (.exponential(from: .seconds(1)), [1, 2, 4, 8, 16]),
    (.exponential(from: .milliseconds(100), multiplier: 1.1), [0.1, 0.11, 0.121, 0.1331, 0.14641]),
    (.exponential(from: .seconds(8), multiplier: 0.5), [8, 4, 2, 1, 0.5]),
    (.exponential(from: .seconds(1), multiplier: 1), [1, 1, 1, 1, 1]),
    (.exponential(from: .seconds(1), multiplier: .nan), [1, 1, 1, 1, 1]),
    (.exponential(from: .seconds(1), multiplier: 0), [1, 0, 0, 0, 0]),
    (.exponential(from: .seconds(1), multiplier: -2), [1, 0, 0, 0, 0]),
    (.exponential(from: .seconds(-1), multiplier: 2), [0, 0, 0, 0, 0]),
    (.exponential(from: .zero, multiplier: .infinity), [0, 0, 0, 0, 0]),
    (.fibonacci(from: .seconds(2)), [2, 2, 4, 6, 10]),
    (.custom { .seconds($0.number * $0.number) }, [1, 4, 9, 16, 25]),
    (.custom { .seconds(-$0.number) }, [0, 0, 0, 0, 0]),
    (.exponential(from: .seconds(1)).capped(at: .seconds(5)), [1, 2, 4, 5, 5]),
    (.constant(.seconds(9)).capped(at: .seconds(-1)), [0, 0, 0, 0, 0]),
    (.constant(.seconds(9)).capped(at: .seconds(2)).capped(at: .seconds(4)), [4, 4, 4, 4, 4]),
  ])
  func `each kind of backoff produces the expected delays`(backoff: Backoff, seconds: [Double]) {
    #expect(backoff.delays(first: 5) == seconds.map { .nanoseconds(Int64(($0 * 1e9).rounded())) })
  }

  @Test func `an exponential delay is rounded to the nearest nanosecond`() {
    let backoff = Backoff.exponential(from: .nanoseconds(1), multiplier: 1.5)
    #expect(backoff.delays(first: 6) == [1, 2, 2, 3, 5, 8].map { .nanoseconds($0) })
  }

  @Test func `delays that double are exact up to the longest duration`() {
    var generator = SplitMix64(seed: 1)
    for number in 1...96 {
      let delay = Backoff.exponential(from: .nanoseconds(1), multiplier: 2)
        .delay(after: RetryAttempt(number: number), using: &generator)
      #expect(delay == Duration(wholeNanoseconds: Int128(1) << (number - 1)))
    }
  }

  @Test
  func `the closure of a custom backoff gets the attempt, with its number, delay and elapsed time`()
  {
    let attempt = RetryAttempt(number: 7, delay: .seconds(2), elapsed: .seconds(30))
    let backoff = Backoff.custom { attempt in
      .seconds(attempt.number) + attempt.delay + attempt.elapsed
    }
    var generator = SplitMix64(seed: 1)
    #expect(backoff.delay(after: attempt, using: &generator) == .seconds(39))
  }

  @Test func `delays are rounded down to whole nanoseconds`() {
    let fine = Duration(secondsComponent: 1, attosecondsComponent: 1_999_999_999)
    #expect(Backoff.constant(fine).delays(first: 1) == [.seconds(1) + .nanoseconds(1)])
    #expect(
      Backoff.constant(.seconds(9)).capped(at: fine).delays(first: 1) == [
        .seconds(1) + .nanoseconds(1)
      ]
    )
  }

  @Test(arguments: [-1, 0, 1, 3])
  func `a list of delays has the requested length, or is empty for a negative length`(count: Int) {
    #expect(Backoff.default.delays(first: count).count == max(count, 0))
  }

  @Test func `equal seeds give equal delays, and different seeds give different delays`() {
    let jitters: [Jitter] = [.full, .equal, .proportional(0.5), .decorrelated]
    for jitter in jitters {
      let backoff = Backoff.exponential(from: .seconds(1), multiplier: 2).jittered(jitter)
      let delays = backoff.delays(first: 20, randomness: .seeded(42))
      #expect(delays == backoff.delays(first: 20, randomness: .seeded(42)))
      #expect(delays != backoff.delays(first: 20, randomness: .seeded(43)))
      #expect(Set(delays).count == 20)
    }
  }

  @Test(arguments: [
    (Backoff.immediate, "immediate"),
    (.default, "exponential from 0.5 seconds × 1.5, ± 50.0 %, at most 60.0 seconds"),
    (.linear(from: .seconds(1), by: .seconds(2)), "linear from 1.0 seconds by 2.0 seconds"),
    (.fibonacci(from: .seconds(1)).jittered(.full), "fibonacci from 1.0 seconds, full jitter"),
    (.custom { _ in .zero }.jittered(.equal), "custom, equal jitter"),
    (
      .constant(.seconds(3)).jittered(.decorrelated),
      "constant 3.0 seconds, decorrelated jitter"
    ),
  ])
  func `a backoff describes itself`(backoff: Backoff, description: String) {
    #expect(backoff.description == description)
  }
}
