/// One attempt at an operation: its number, the delay before it, and the time since the series
/// began.
public struct RetryAttempt: Sendable, Hashable {
  /// The attempt's number, counted from 1.
  public let number: Int
  /// The delay before the attempt; zero for the first one.
  public let delay: Duration
  /// The time since the series began.
  ///
  /// If the policy has a time limit, the time counts from the start of the first attempt;
  /// otherwise, from the first failure. So without a time limit, a success at the first attempt
  /// reads no clock.
  public let elapsed: Duration

  /// Makes an attempt; a number below 1 counts as 1, and a negative time as zero.
  public init(number: Int, delay: Duration = .zero, elapsed: Duration = .zero) {
    self.number = max(number, 1)
    self.delay = max(delay, .zero)
    self.elapsed = max(elapsed, .zero)
  }

  @usableFromInline static let first = RetryAttempt(number: 1)

  /// Returns a copy with another elapsed time.
  func withElapsedTime(_ elapsed: Duration) -> RetryAttempt {
    RetryAttempt(number: number, delay: delay, elapsed: elapsed)
  }

  /// Returns the attempt that follows this attempt.
  func next(delay: Duration, elapsed: Duration) -> RetryAttempt {
    RetryAttempt(number: min(number, .max - 1) + 1, delay: delay, elapsed: elapsed)
  }
}
