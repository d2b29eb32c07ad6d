/// One attempt at an operation: which it is, and the waiting before it.
public struct RetryAttempt: Sendable, Hashable {
  /// Its number, counted from 1.
  public let number: Int
  /// How long was waited before it; zero for the first.
  public let delay: Duration
  /// How long ago the series began.
  ///
  /// It counts from the beginning of the first attempt if the policy limits the time, else from
  /// the first failure: a success at the first attempt then reads no clock.
  public let elapsed: Duration

  /// Describes an attempt; a number below 1 counts as 1, a negative time as none.
  public init(number: Int, delay: Duration = .zero, elapsed: Duration = .zero) {
    self.number = max(number, 1)
    self.delay = max(delay, .zero)
    self.elapsed = max(elapsed, .zero)
  }

  @usableFromInline static let first = RetryAttempt(number: 1)

  /// The same attempt, as it stands at another time.
  func after(_ elapsed: Duration) -> RetryAttempt {
    RetryAttempt(number: number, delay: delay, elapsed: elapsed)
  }

  /// The attempt after this one.
  func next(delay: Duration, elapsed: Duration) -> RetryAttempt {
    RetryAttempt(number: min(number, .max - 1) + 1, delay: delay, elapsed: elapsed)
  }
}
