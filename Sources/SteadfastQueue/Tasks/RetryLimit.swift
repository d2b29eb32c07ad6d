/// How often a failed task is tried again.
///
/// An integer literal will do: `maxRetries: 3` allows 3 retries, so 4 attempts in all.
public enum RetryLimit: Sendable, Hashable, ExpressibleByIntegerLiteral {
  /// At most this many retries after the first attempt. It may not be negative.
  case atMost(Int)
  /// Until it succeeds, or its handler abandons it.
  case alwaysRetry

  /// At most this many retries after the first attempt.
  public init(integerLiteral value: Int) { self = .atMost(value) }

  /// Whether a task may be tried again as its retry with this number, counted from 1.
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
