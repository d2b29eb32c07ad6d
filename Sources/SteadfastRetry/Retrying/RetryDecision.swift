/// What to do about a failed attempt.
public enum RetryDecision: Sendable, Hashable {
  /// Try again after the delay that the policy's backoff gives.
  case retry
  /// Try again after exactly this delay, which replaces the backoff's and may exceed its cap.
  ///
  /// Write it as ``retry(after:)``. The attempt counts like any other, and the policy's limits
  /// apply. A negative delay means no delay.
  case retryAfter(Duration)
  /// Give up: throw the error at once.
  case stop

  /// Try again after exactly this delay, as a server asks for with `Retry-After`.
  public static func retry(after delay: Duration) -> RetryDecision { .retryAfter(delay) }

  /// The decision about an error unless the caller decides.
  ///
  /// A ``RetryAwareError`` decides for itself, `CancellationError` stops, and any other error is
  /// retried.
  public static func `default`(for error: some Error) -> RetryDecision {
    if let aware = error as? any RetryAwareError { return aware.retryDecision }
    return error is CancellationError ? .stop : .retry
  }
}

/// An error that knows whether trying again can help.
///
/// `withRetry` asks the error unless the caller decides with `shouldRetry`. A task queue asks each
/// such error that a handler throws.
public protocol RetryAwareError: Error {
  /// What to do about the attempt that threw this error.
  var retryDecision: RetryDecision { get }
}
