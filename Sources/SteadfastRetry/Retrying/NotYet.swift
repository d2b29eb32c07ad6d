/// A result that means "ask again": thrown in an operation, it is retried like a failure.
///
/// It makes `withRetry` a way to wait for something:
/// ```swift
/// let report = try await withRetry(.within(.seconds(60), backoff: .constant(.seconds(2)))) {
///   let report = try await api.report(id)
///   guard report.isComplete else { throw NotYet(report) }
///   return report
/// }
/// ```
/// When the policy gives up it is thrown to the caller, with the last result in it.
public struct NotYet<Value: Sendable>: RetryAwareError, CustomStringConvertible {
  /// The result that is not the awaited one.
  public let value: Value
  /// How long to wait before asking again; nil leaves it to the policy's backoff.
  public let retryAfter: Duration?

  /// A result that is not the awaited one.
  public init(_ value: Value, retryAfter: Duration? = nil) {
    self.value = value
    self.retryAfter = retryAfter
  }

  /// Try again, after the named delay if there is one.
  public var retryDecision: RetryDecision { retryAfter.map { .retry(after: $0) } ?? .retry }

  /// What was there instead of the awaited result.
  public var description: String {
    "not yet the awaited result, but \(value); allow more attempts or time to wait longer"
  }
}

extension NotYet where Value == Void {
  /// Nothing to show for it yet.
  public init(retryAfter: Duration? = nil) { self.init((), retryAfter: retryAfter) }
}
