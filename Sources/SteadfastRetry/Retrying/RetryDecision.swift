/// What to do about a failed attempt.
///
/// More decisions may be added.
public struct RetryDecision: Sendable, Hashable {
  package enum Choice: Sendable, Hashable {
    case retry, retryAfter(Duration), stop
  }

  package let choice: Choice

  /// Try again after the delay that the policy's backoff gives.
  public static let retry = RetryDecision(choice: .retry)

  /// Don't try again: throw the error at once.
  public static let stop = RetryDecision(choice: .stop)

  /// Try again after exactly this delay, as a server asks for with `Retry-After`.
  ///
  /// The delay replaces the delay of the backoff, and may exceed the backoff's cap. The attempt
  /// counts like any other, and the policy's limits apply. A negative delay means no delay.
  public static func retry(after delay: Duration) -> RetryDecision {
    RetryDecision(choice: .retryAfter(delay))
  }

  /// Returns the decision about an error if the caller does not decide.
  ///
  /// A ``RetryAwareError`` decides for itself, `CancellationError` stops, and any other error is
  /// retried.
  public static func `default`(for error: some Error) -> RetryDecision {
    if let aware = error as? any RetryAwareError { return aware.retryDecision }
    return error is CancellationError ? .stop : .retry
  }
}

extension RetryDecision: CustomStringConvertible {
  /// A description such as `retry`, `retry after 5.0 seconds` or `stop`.
  public var description: String {
    switch choice {
    case .retry: "retry"
    case .retryAfter(let delay): "retry after \(delay)"
    case .stop: "stop"
    }
  }
}

/// An error that knows whether trying again can help.
///
/// `withRetry` uses the error's decision unless the caller gives a `shouldRetry` closure. A task
/// queue uses the decision of each such error that a handler throws.
public protocol RetryAwareError: Error {
  /// What to do about the attempt that threw this error.
  var retryDecision: RetryDecision { get }
}
