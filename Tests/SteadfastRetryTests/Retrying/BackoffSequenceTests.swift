import SteadfastTesting
import Testing

@testable import SteadfastRetry

@Suite(.timeLimit(.minutes(5))) struct BackoffSequenceTests {
  private let clock = VirtualClock()

  @Test func `the first attempt comes at once, and each later attempt comes after a delay`()
    async throws
  {
    let clock = clock
    let policy = RetryPolicy.attempts(3, backoff: .exponential(from: .seconds(1), multiplier: 2))
    async let attempts = {
      var attempts: [RetryAttempt] = []
      for await attempt in BackoffSequence(policy, clock: clock) { attempts.append(attempt) }
      return attempts
    }()
    for seconds in [1, 2] {
      try await clock.waitForSleepers(count: 1)
      clock.advance(by: .seconds(seconds))
    }
    #expect(
      await attempts == [
        RetryAttempt(number: 1),
        RetryAttempt(number: 2, delay: .seconds(1), elapsed: .seconds(1)),
        RetryAttempt(number: 3, delay: .seconds(2), elapsed: .seconds(3)),
      ]
    )
  }

  @Test func `a new iterator starts over, and so does an iterator that is reset`() async {
    let sequence = BackoffSequence(.attempts(2, backoff: .immediate), clock: clock)
    for _ in 0..<2 {
      var iterator = sequence.makeAsyncIterator()
      #expect(await iterator.next()?.number == 1)
      #expect(await iterator.next()?.number == 2)
      #expect(await iterator.next() == nil)
      iterator.reset()
      #expect(await iterator.next()?.number == 1)
    }
  }

  @Test func `the sequence ends within its time limit`() async {
    let clock = clock
    let policy = RetryPolicy.within(.seconds(10), backoff: .immediate)
    var count = 0
    for await _ in BackoffSequence(policy, clock: clock) {
      count += 1
      clock.advance(by: .seconds(4))
    }
    #expect(count == 3)
  }

  @Test func `cancelling the task ends the sequence at once`() async throws {
    let clock = clock
    try await withThrowingTaskGroup(of: Int.self) { group in
      group.addTask {
        var count = 0
        for await _ in BackoffSequence(
          RetryPolicy(maxAttempts: nil, backoff: .constant(.seconds(60))),
          clock: clock
        ) { count += 1 }
        return count
      }
      try await clock.waitForSleepers(count: 1)
      group.cancelAll()
      #expect(try await group.next() == 1)
    }
    #expect(clock.now == VirtualClock.Instant(offset: .zero))
  }

  @Test func `in a cancelled task, the sequence has no attempts`() async throws {
    let outcome = try await outcome {
      cancelThisTask()
      var count = 0
      for await _ in BackoffSequence() { count += 1 }
      return count
    } while: { _ in
    }
    #expect(outcome == .success(0))
  }

  @Test func `cancelling the task also ends a sequence without delays`() async throws {
    let outcome = try await outcome {
      var count = 0
      for await _ in BackoffSequence(.attempts(10, backoff: .immediate)) {
        count += 1
        if count == 3 { cancelThisTask() }
      }
      return count
    } while: { _ in
    }
    #expect(outcome == .success(3))
  }

  @Test func `a delay that would exceed the time limit ends the sequence at once`() async {
    let clock = InstantClock()
    let policy = RetryPolicy.within(.seconds(5), backoff: .constant(.seconds(2)))
    var elapsed: [Duration] = []
    for await attempt in BackoffSequence(policy, clock: clock) { elapsed.append(attempt.elapsed) }
    #expect(elapsed == [.zero, .seconds(2), .seconds(4)])
    #expect(clock.sleeps == [.seconds(2), .seconds(2)])
  }

  @Test func `the sequence ends after a delay that has overrun the time limit`() async {
    let clock = InstantClock(oversleep: .seconds(10_800))
    let policy = RetryPolicy.within(.seconds(60), backoff: .constant(.seconds(30)))
    var numbers: [Int] = []
    for await attempt in BackoffSequence(policy, clock: clock) { numbers.append(attempt.number) }
    #expect(numbers == [1] && clock.sleeps == [.seconds(30)])
  }

  @Test func `without a time limit, the first attempt does not read the clock`() async {
    let clock = InstantClock()
    for await _ in BackoffSequence(.attempts(1), clock: clock) {}
    var iterator = BackoffSequence(.attempts(2), clock: clock).makeAsyncIterator()
    _ = await iterator.next()
    #expect(clock.readings == 1)  // The sequence of one attempt reads the elapsed time at its end.
  }

  @Test func `a sequence that has ended stays ended until it is reset`() async {
    var iterator = BackoffSequence(.attempts(1), clock: clock).makeAsyncIterator()
    #expect(await iterator.next() == RetryAttempt(number: 1))
    #expect(await iterator.next() == nil)
    #expect(await iterator.next() == nil)
    iterator.reset()
    #expect(await iterator.next() == RetryAttempt(number: 1))
  }

  @Test func `reset restarts the delays and the time limit, but not the series of random numbers`()
    async
  {
    let clock = InstantClock()
    let backoff = Backoff.exponential(from: .seconds(1)).jittered(.equal)
    let policy = RetryPolicy(
      maxAttempts: nil,
      maxElapsedTime: .seconds(4),
      backoff: backoff,
      randomness: .seeded(1)
    )
    var iterator = BackoffSequence(policy, clock: clock).makeAsyncIterator()
    var series: [[Duration]] = []
    for _ in 0..<2 {
      var delays: [Duration] = []
      while let attempt = await iterator.next() { delays.append(attempt.delay) }
      series.append(delays)
      iterator.reset()
    }
    #expect(series.allSatisfy { $0.count == 3 && $0[0] == .zero && $0[1] <= .seconds(1) })
    #expect(series[0] != series[1])
  }

  @Test func `the delays of a reconnect loop grow, and start over after a healthy connection`()
    async
  {
    let clock = InstantClock()
    let policy = RetryPolicy(maxAttempts: nil, backoff: .exponential(from: .seconds(1)))
    var attempts = BackoffSequence(policy, clock: clock).makeAsyncIterator()
    for healthySeconds in [0, 0, 0, 60, 0, 0] {
      guard await attempts.next() != nil else { break }
      clock.advance(by: .seconds(healthySeconds))
      if healthySeconds >= 30 { attempts.reset() }
    }
    #expect(clock.sleeps == [1, 2, 4, 1].map { .seconds($0) })
  }
}
