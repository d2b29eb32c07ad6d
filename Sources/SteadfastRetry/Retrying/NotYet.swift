/// A result that means "ask again": an operation throws it to be retried as after a failure.
///
/// With it, `withRetry` can wait for something:
/// ```swift
/// let every = Backoff.constant(.seconds(2))
/// let report = try await withRetry(.within(.seconds(60), backoff: every)) {
///   let report = try await api.report(id)
///   guard report.isComplete else { throw NotYet(report) }
///   return report
/// }
/// ```
/// When the policy gives up, the caller gets the last one as an error, with the last result in it.
public struct NotYet<Value: Sendable>: RetryAwareError, CustomStringConvertible {
  /// The result that is not the awaited one.
  public let value: Value
  /// How long to wait before asking again; nil for the policy's backoff.
  public let retryAfter: Duration?

  /// A result that is not the awaited one.
  public init(_ value: Value, retryAfter: Duration? = nil) {
    self.value = value
    self.retryAfter = retryAfter
  }

  /// Try again, after ``retryAfter`` if it is set.
  public var retryDecision: RetryDecision { retryAfter.map { .retry(after: $0) } ?? .retry }

  /// The result that came instead of the awaited one.
  public var description: String {
    "not yet the awaited result, but \(value); allow more attempts or time to wait longer"
  }
}

extension NotYet where Value == Void {
  /// Makes a `NotYet` without a result.
  public init(retryAfter: Duration? = nil) { self.init((), retryAfter: retryAfter) }
}
