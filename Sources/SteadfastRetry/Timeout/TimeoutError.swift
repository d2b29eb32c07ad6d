/// An operation was cancelled because it did not end in time.
///
/// `withRetry` tries again after it, as after any error.
public struct TimeoutError: Error, Sendable, Hashable, CustomStringConvertible {
  /// How long the operation could have taken.
  public let limit: Duration

  /// Describes an operation that took longer than this.
  public init(limit: Duration) { self.limit = limit }

  /// What happened, and what to do about it.
  public var description: String {
    "the operation did not end within \(limit) and was cancelled; "
      + "try again, or give withTimeout a longer limit"
  }
}
