public import SteadfastRetry

#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
public import Foundation
#endif

/// The error that a handler throws to abandon its task at once, whatever retries it has left.
///
/// Any `RetryAwareError` whose `retryDecision` is `.stop` does the same; this one is ready-made.
public struct TaskAbandoned: RetryAwareError, CustomStringConvertible {
  /// Why the task can't be done: stored with a retained task, and part of its outcome.
  public let reason: String

  /// Makes the error with a reason.
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

/// The error that a handler throws to snooze its task: to be called again later, without a failure.
///
/// The attempt is not counted as a retry, and the task's last error stays as it was. The date is
/// chosen when the error is thrown. Setting the system clock back afterwards does not make the date
/// earlier.
///
/// `withRetry` in a handler does not retry it, but throws it at once.
public struct TaskSnoozed: RetryAwareError, CustomStringConvertible {
  /// What is put off.
  public enum Scope: Sendable, Hashable {
    /// The task alone.
    case task
    /// The task, and all tasks that share its rate limit (``RateLimit``).
    ///
    /// Throw it when a server has answered with 429, say. If the task has a limit with a key, the
    /// tasks with the same key are put off, else those of its name if that has a limit, else those
    /// that share the queue's. Without any limit, it is the task alone. The pause is stored, and
    /// holds for all processes that share the store.
    case rateLimit
  }

  /// How long to snooze the task; a negative duration means not at all.
  public let duration: Duration
  /// What is put off; by default the task.
  public let scope: Scope

  /// Makes the error with how long to snooze the task, and what else is put off.
  public init(for duration: Duration, scope: Scope = .task) {
    self.duration = duration
    self.scope = scope
  }

  /// `.stop`, which is for `withRetry` in the handler: the queue snoozes the task.
  public var retryDecision: RetryDecision { .stop }

  /// How long the task is snoozed.
  public var description: String { "snoozed for \(duration)" }
}

extension TaskSnoozed: LocalizedError {
  /// How long the task is snoozed.
  public var errorDescription: String? { description }
}
