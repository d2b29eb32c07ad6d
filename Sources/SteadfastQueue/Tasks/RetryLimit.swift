/// How often a failed task is tried again.
///
/// An integer literal is enough: `maxRetries: 3` allows 3 retries, so 4 attempts in all.
public enum RetryLimit: Sendable, Hashable, ExpressibleByIntegerLiteral {
  /// At most this many retries after the first attempt. The number must not be negative.
  case atMost(Int)
  /// Retries until the task succeeds, or its handler abandons it.
  case alwaysRetry

  /// At most this many retries after the first attempt.
  public init(integerLiteral value: Int) { self = .atMost(value) }

  /// Returns whether the retry with this number is allowed, counted from 1.
  func allows(retryCount: Int) -> Bool {
    switch self {
    case .atMost(let limit): retryCount <= limit
    case .alwaysRetry: true
    }
  }
}

extension RetryLimit: CustomStringConvertible {
  /// As in `at most 3`, or `always`.
  public var description: String {
    switch self {
    case .atMost(let limit): "at most \(limit)"
    case .alwaysRetry: "always"
    }
  }
}
