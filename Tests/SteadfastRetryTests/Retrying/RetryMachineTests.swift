import Testing

@testable import SteadfastRetry

@Suite struct RetryMachineTests {
  /// Returns a machine whose first attempt has failed.
  private func failedMachine(_ policy: RetryPolicy, after elapsed: Duration = .zero)
    -> RetryMachine
  {
    var machine = RetryMachine(policy)
    machine.recordFailure(elapsed: elapsed)
    return machine
  }

  @Test func `each attempt has a number, a delay and an elapsed time`() {
    var machine = RetryMachine(.attempts(3, backoff: .constant(.seconds(2))))
    #expect(machine.attempt == RetryAttempt(number: 1))
    machine.recordFailure(elapsed: .seconds(1))
    #expect(machine.attempt == RetryAttempt(number: 1, delay: .zero, elapsed: .seconds(1)))
    #expect(machine.step(after: .retry) == .retry(after: .seconds(2)))
    _ = machine.begin(delay: .seconds(2), elapsed: .seconds(3))
    #expect(machine.attempt == RetryAttempt(number: 2, delay: .seconds(2), elapsed: .seconds(3)))
  }

  @Test(arguments: [Int.min, -1, 0, 1])
  func `a policy whose maximum is less than one attempt allows one attempt`(maxAttempts: Int) {
    var machine = failedMachine(.attempts(maxAttempts, backoff: .immediate))
    #expect(machine.step(after: .retry) == .stop)
  }

  @Test(arguments: [
    // The elapsed time, the delay, and whether another attempt follows. The limit is 10 s.
    (Duration.zero, Duration.seconds(10), true),
    (.zero, .seconds(10) + .nanoseconds(1), false),
    (.seconds(4), .seconds(6), true),
    (.seconds(4), .seconds(6) + .nanoseconds(1), false),
    (.seconds(10) - .nanoseconds(1), .zero, true),
    (.seconds(10), .zero, false),
    (.seconds(-1), .seconds(10), true),
    (Duration(attoseconds: .max), .zero, false),
    (.zero, Duration(attoseconds: .max), false),
    (.zero, Duration(attoseconds: .min), true),
  ])
  func `a delay that would exceed the time limit ends the attempts`(
    elapsed: Duration,
    delay: Duration,
    isRetried: Bool
  ) {
    let policy = RetryPolicy.within(.seconds(10), backoff: .constant(delay))
    var backedOff = failedMachine(policy, after: elapsed)
    var asked = failedMachine(policy, after: elapsed)
    let decision = RetryDecision.retry(after: delay)
    #expect(asked.step(after: decision) == (isRetried ? .retry(after: max(delay, .zero)) : .stop))
    #expect((backedOff.step(after: .retry) != .stop) == isRetried)
  }

  @Test(arguments: [Duration.zero, .seconds(-1), Duration(attoseconds: .min)])
  func `a policy whose time limit is zero or less allows one attempt`(limit: Duration) {
    var machine = failedMachine(.within(limit, backoff: .immediate))
    #expect(machine.step(after: .retry) == .stop)
  }

  @Test func `of two limits, the limit that is reached first applies`() {
    let policy = RetryPolicy(
      maxAttempts: 2,
      maxElapsedTime: .seconds(10),
      backoff: .constant(.seconds(1))
    )
    var early = failedMachine(policy)
    #expect(early.step(after: .retry) == .retry(after: .seconds(1)))
    _ = early.begin(delay: .seconds(1), elapsed: .seconds(1))
    #expect(early.step(after: .retry) == .stop)
    var late = failedMachine(policy, after: .seconds(10))
    #expect(late.step(after: .retry) == .stop)
  }

  @Test func `without limits the attempts never end`() {
    var machine = failedMachine(RetryPolicy(maxAttempts: nil, backoff: .immediate))
    for _ in 0..<10_000 {
      #expect(machine.step(after: .retry) == .retry(after: .zero))
      _ = machine.begin(delay: .zero, elapsed: .zero)
    }
    #expect(machine.attempt.number == 10_001)
  }

  @Test func `a decision to stop ends the attempts`() {
    var machine = failedMachine(RetryPolicy(maxAttempts: nil, backoff: .immediate))
    #expect(machine.step(after: .stop) == .stop)
  }

  @Test func `a requested delay is exact, even beyond the cap, and the retry counts as an attempt`()
  {
    let policy = RetryPolicy.attempts(2, backoff: .constant(.seconds(1)).capped(at: .seconds(2)))
    var machine = failedMachine(policy)
    #expect(machine.step(after: .retry(after: .seconds(7))) == .retry(after: .seconds(7)))
    _ = machine.begin(delay: .seconds(7), elapsed: .seconds(7))
    #expect(machine.step(after: .retry(after: .seconds(7))) == .stop)
  }

  @Test func `the number of attempts saturates`() {
    let last = RetryAttempt(number: .max).next(delay: .zero, elapsed: .zero)
    #expect(last.number == .max)
  }

  @Test func `resetting restarts the attempts, but not the series of random numbers`() {
    let policy = RetryPolicy(
      maxAttempts: nil,
      backoff: .constant(.seconds(1)).jittered(.full),
      randomness: .seeded(1)
    )
    var machine = failedMachine(policy)
    let before = machine.step(after: .retry)
    _ = machine.begin(delay: .seconds(1), elapsed: .seconds(1))
    machine.reset()
    #expect(machine.attempt == RetryAttempt(number: 1))
    #expect(machine.step(after: .retry) != before)
  }

  @Test(arguments: [
    (RetryDecision.retry, "retry"), (.retry(after: .seconds(5)), "retry after 5.0 seconds"),
    (.stop, "stop"),
  ])
  func `a decision describes itself`(decision: RetryDecision, description: String) {
    #expect(decision.description == description)
  }
}
