import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastRetry

@Suite struct WithRetryTests {
  private let clock = InstantClock()

  /// Runs `withRetry` with an operation that fails this number of times, and returns the start time
  /// of each attempt, in seconds.
  private func startTimesOfAttempts(
    _ policy: RetryPolicy,
    error: any Error = Offline(),
    failures: Int = .max
  ) async throws -> [Double] {
    let start = clock.now
    var seconds: [Double] = []
    do {
      try await withRetry(policy, clock: clock) {
        seconds.append(start.duration(to: clock.now) / .seconds(1))
        if seconds.count <= failures { throw error }
      }
    } catch is Offline {
    } catch is Throttled {
    }
    return seconds
  }

  // MARK: Attempts

  @Test func `the first success is returned after several failures`() async throws {
    let policy = RetryPolicy.attempts(5, backoff: .exponential(from: .seconds(1)))
    #expect(try await startTimesOfAttempts(policy, failures: 3) == [0, 1, 3, 7])
  }

  @Test(arguments: [(-3, 1), (0, 1), (1, 1), (2, 2), (5, 5)])
  func `after the maximum number of attempts, the last error is thrown`(
    maxAttempts: Int,
    attempts: Int
  ) async {
    var count = 0
    let error = await #expect(throws: Offline.self) {
      try await withRetry(.attempts(maxAttempts, backoff: .immediate)) {
        count += 1
        throw Offline(attempt: count)
      }
    }
    #expect(count == attempts)
    #expect(error == Offline(attempt: attempts))
  }

  @Test func `a success at the first attempt neither reads the clock nor sleeps`() async {
    let value = await withRetry(.attempts(3), clock: clock) { 42 }
    #expect(value == 42)
    #expect(clock.readings == 0)
    #expect(clock.sleeps.isEmpty)
  }

  @Test func `a delay of zero does not sleep`() async throws {
    _ = try await startTimesOfAttempts(.attempts(3, backoff: .immediate))
    #expect(clock.sleeps.isEmpty)
  }

  @Test func `the delays are those that the backoff gives for the seed`() async throws {
    let backoff = Backoff.exponential(from: .seconds(1)).jittered(.full)
    let policy = RetryPolicy(maxAttempts: 6, backoff: backoff, randomness: .seeded(42))
    _ = try await startTimesOfAttempts(policy)
    #expect(clock.sleeps == backoff.delays(first: 5, randomness: .seeded(42)))
  }

  @Test func `decorrelated jitter derives from the previous delay`() async throws {
    let backoff = Backoff.constant(.seconds(1)).jittered(.decorrelated).capped(at: .seconds(20))
    let policy = RetryPolicy(maxAttempts: 100, backoff: backoff, randomness: .seeded(42))
    _ = try await startTimesOfAttempts(policy)
    #expect(clock.sleeps == backoff.delays(first: 99, randomness: .seeded(42)))
  }

  // MARK: Decisions

  @Test func `shouldRetry can stop the attempts, and gets the failed attempt`() async {
    var seen: [RetryAttempt] = []
    await #expect(throws: Offline.self) {
      try await withRetry(.attempts(9, backoff: .constant(.seconds(1))), clock: clock) {
        clock.advance(by: .seconds(5))
        throw Offline()
      } shouldRetry: { _, attempt in
        seen.append(attempt)
        return attempt.number == 3 ? .stop : .retry
      }
    }
    #expect(
      seen == [
        RetryAttempt(number: 1),
        RetryAttempt(number: 2, delay: .seconds(1), elapsed: .seconds(6)),
        RetryAttempt(number: 3, delay: .seconds(1), elapsed: .seconds(12)),
      ]
    )
  }

  @Test func `a time limit counts from the start of the first attempt`() async {
    var elapsed: [Duration] = []
    let policy = RetryPolicy.within(.seconds(60), backoff: .constant(.seconds(30)))
    await #expect(throws: Offline.self) {
      try await withRetry(policy, clock: clock) {
        clock.advance(by: .seconds(5))
        throw Offline()
      } shouldRetry: { _, attempt in
        elapsed.append(attempt.elapsed)
        return .retry
      }
    }
    #expect(elapsed == [.seconds(5), .seconds(40)])
  }

  @Test func `a caller can record every failure`() async {
    var history: [Offline] = []
    await #expect(throws: Offline(attempt: 3)) {
      try await withRetry(.attempts(3), clock: clock) { attempt throws(Offline) in
        throw Offline(attempt: attempt.number)
      } shouldRetry: { error, _ in
        history.append(error)
        return .default(for: error)
      }
    }
    #expect(history.map(\.attempt) == [1, 2, 3])
  }

  @Test func `a delay that an error requests applies even if it exceeds the cap`() async throws {
    let policy = RetryPolicy.attempts(3, backoff: .constant(.seconds(1)).capped(at: .seconds(2)))
    #expect(try await startTimesOfAttempts(policy, error: Throttled()) == [0, 7, 14])
  }

  @Test(arguments: [(Offline() as any Error, 3), (Forbidden(), 1), (CancellationError(), 1)])
  func `an error can decide whether it is retried, and an error that can't decide is retried`(
    error: any Error,
    attempts: Int
  ) async {
    var count = 0
    await #expect(throws: (any Error).self) {
      try await withRetry(.attempts(3, backoff: .immediate)) {
        count += 1
        throw error
      }
    }
    #expect(count == attempts)
  }

  @Test func `an operation can poll until a result is ready`() async throws {
    var progress = 0
    let policy = RetryPolicy.attempts(10, backoff: .constant(.seconds(1)))
    let done = try await withRetry(policy, clock: clock) {
      progress += 40
      guard progress >= 100 else { throw NotYet(progress, retryAfter: .seconds(progress)) }
      return progress
    }
    #expect(done == 120)
    #expect(clock.sleeps == [.seconds(40), .seconds(80)])
  }

  @Test func `if polling ends without success, the error has the last result`()
    async
  {
    var progress = 0
    do {
      try await withRetry(.attempts(3), clock: clock) { () async throws(NotYet<Int>) in
        progress += 10
        throw NotYet(progress)
      }
    } catch {
      #expect(error.value == 30)
    }
  }

  // MARK: Time limits

  @Test func `a delay that would exceed the limit is skipped, and the error is thrown at once`()
    async throws
  {
    let policy = RetryPolicy.within(.seconds(5), backoff: .constant(.seconds(2)))
    #expect(try await startTimesOfAttempts(policy) == [0, 2, 4])
    #expect(clock.sleeps == [.seconds(2), .seconds(2)])
  }

  @Test func `no attempt starts after a delay that has overrun the limit`() async throws {
    let clock = InstantClock(oversleep: .seconds(10_800))
    let budget = RetryBudget(capacity: 2, retriesPerSuccess: 0)
    var attempts = 0
    await #expect(throws: Offline.self) {
      try await withRetry(
        .within(.seconds(60), backoff: .constant(.seconds(30))),
        clock: clock,
        budget: budget
      ) {
        attempts += 1
        throw Offline()
      }
    }
    #expect(attempts == 1 && clock.sleeps == [.seconds(30)])
    #expect(budget.tokens == 2)
  }

  @Test func `a limit of 100 ms with a delay of 2 s throws at once`() async throws {
    let policy = RetryPolicy.within(.milliseconds(100), backoff: .constant(.seconds(2)))
    #expect(try await startTimesOfAttempts(policy) == [0])
    #expect(clock.sleeps.isEmpty)
  }

  @Test func `a requested delay beyond the limit throws at once`() async throws {
    #expect(try await startTimesOfAttempts(.within(.seconds(5)), error: Throttled()) == [0])
    #expect(clock.sleeps.isEmpty)
  }

  @Test func `the limit does not interrupt a long operation`() async throws {
    let value = await withRetry(.within(.seconds(1)), clock: clock) {
      clock.advance(by: .seconds(100))
      return 42
    }
    #expect(value == 42)
  }

  // MARK: Budget

  @Test func `if the budget has no token, the error is thrown at once`() async {
    let budget = RetryBudget(capacity: 2, retriesPerSuccess: 0.1)
    var attempts = 0
    await #expect(throws: Offline.self) {
      try await withRetry(
        .attempts(9, backoff: .constant(.seconds(1))),
        clock: clock,
        budget: budget
      ) {
        attempts += 1
        throw Offline()
      }
    }
    #expect(attempts == 3)
    #expect(clock.sleeps == [.seconds(1), .seconds(1)])
    #expect(budget.tokens == 0)
  }

  @Test func `a retry that the limits forbid costs no token`() async {
    let budget = RetryBudget(capacity: 5, retriesPerSuccess: 0)
    for policy in [RetryPolicy.attempts(1), .within(.zero)] {
      await #expect(throws: Offline.self) {
        try await withRetry(policy, clock: clock, budget: budget) { throw Offline() }
      }
    }
    #expect(budget.tokens == 5)
  }

  @Test func `a success returns tokens to the budget, after the first attempt or after retries`()
    async throws
  {
    let budget = RetryBudget(capacity: 5, retriesPerSuccess: 0.5)
    try await withRetry(.attempts(3), clock: clock, budget: budget) {
      if $0.number < 3 { throw Offline() }
    }
    #expect(budget.tokens == 3.5)
    for policy in [RetryPolicy.attempts(3), .within(.seconds(1))] {
      await withRetry(policy, clock: clock, budget: budget) {}
    }
    #expect(budget.tokens == 4.5)
  }
}
