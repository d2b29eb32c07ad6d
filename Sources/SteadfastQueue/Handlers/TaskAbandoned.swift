public import SteadfastRetry

#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
public import Foundation
#endif

/// The error that a handler throws to give its task up at once, whatever retries it has left.
///
/// Any `RetryAwareError` whose `retryDecision` is `.stop` does the same; this
/// one is ready-made.
public struct TaskAbandoned: RetryAwareError, CustomStringConvertible {
  /// Why the task can't be done: kept with it, and told as its outcome.
  public let reason: String

  /// Makes the error with the reason to keep.
  public init(_ reason: String) { self.reason = reason }

  /// `.stop`.
  public var retryDecision: RetryDecision { .stop }

  /// The reason.
  public var description: String { reason }
}

extension TaskAbandoned: LocalizedError {
  /// The reason.
  public var errorDescription: String? { description }
}
