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

/// The error that a handler throws to be called again later without having failed.
///
/// The attempt is not counted as a retry, and the task's last error stays as it was.
/// The date is chosen when it is thrown: a system clock that is set back afterwards does not bring it
/// forward.
public struct TaskSnoozed: Error, CustomStringConvertible {
  /// How long to put the task off; a negative duration means not at all.
  public let duration: Duration

  /// Makes the error with the time to put the task off for.
  public init(for duration: Duration) { self.duration = duration }

  /// How long the task is put off.
  public var description: String { "put off for \(duration)" }
}

extension TaskSnoozed: LocalizedError {
  /// How long the task is put off.
  public var errorDescription: String? { description }
}
