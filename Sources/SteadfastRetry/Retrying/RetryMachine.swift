/// The state of a series of attempts, which decides what follows a failure.
@usableFromInline struct RetryMachine {
  /// What to do after a failed attempt.
  @frozen @usableFromInline enum Step: Equatable {
    /// Wait this long, then try again.
    case retry(after: Duration)
    /// Make no further attempt.
    case stop
  }

  /// The attempt that is running or has just failed.
  @usableFromInline private(set) var attempt = RetryAttempt(number: 1)
  private let policy: RetryPolicy
  private var generator: LazyGenerator

  @usableFromInline init(_ policy: RetryPolicy) {
    self.policy = policy
    generator = LazyGenerator(policy.randomness)
  }

  /// Records that the attempt failed, `elapsed` after the series began.
  @usableFromInline mutating func recordFailure(elapsed: Duration) {
    attempt = attempt.withElapsedTime(elapsed)
  }

  /// Returns what to do after the failed attempt, given the decision about its error.
  @usableFromInline mutating func step(after decision: RetryDecision) -> Step {
    if let maxAttempts = policy.maxAttempts, attempt.number >= max(maxAttempts, 1) { return .stop }
    let delay: Duration
    switch decision.choice {
    case .stop: return .stop
    case .retry: delay = policy.backoff.delay(after: attempt, using: &generator)
    case .retryAfter(let wanted): delay = max(wanted, .zero)
    }
    guard let maxElapsedTime = policy.maxElapsedTime else { return .retry(after: delay) }
    // Subtracting cannot overflow, because `elapsed` is not negative, and less than the limit.
    guard attempt.elapsed < maxElapsedTime, delay <= maxElapsedTime - attempt.elapsed else {
      return .stop
    }
    return .retry(after: delay)
  }

  /// Begins the next attempt, after the delay since the last failure, unless the time limit has
  /// passed.
  ///
  /// - Returns: Whether the attempt begins. The time limit may have passed because the delay took
  ///   longer than planned, for example while a computer slept.
  @usableFromInline mutating func begin(delay: Duration, elapsed: Duration) -> Bool {
    if let maxElapsedTime = policy.maxElapsedTime, elapsed > maxElapsedTime { return false }
    attempt = attempt.next(delay: delay, elapsed: elapsed)
    return true
  }

  /// Begins the next attempt without a delay, at the time of the failure.
  @usableFromInline mutating func beginAtOnce() {
    attempt = attempt.next(delay: .zero, elapsed: attempt.elapsed)
  }

  /// Starts over with a first attempt, but continues the series of random numbers.
  mutating func reset() { attempt = RetryAttempt(number: 1) }
}
