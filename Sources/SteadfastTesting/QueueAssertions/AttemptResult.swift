import SteadfastQueue

#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
public import Foundation
#endif

/// How one attempt at a task ended, and what a queue does then.
public struct AttemptResult: Sendable {
  /// What a queue does when an attempt ends.
  @nonexhaustive
  public enum Ending: Sendable, Hashable {
    /// The handler returned: the task has succeeded.
    case succeeded
    /// The handler threw an error, and the task is retried at this date.
    case failed(retryDate: Date)
    /// The task is abandoned: the handler said so, or no retries are left. The reason is the text
    /// of the error.
    case abandoned(reason: String)
    /// The handler snoozed the task until this date, without counting a retry.
    case snoozed(until: Date)
    /// The attempt suspended the task until this date, or until a completion if it is `nil`.
    case suspended(until: Date?)
    /// Something that the task remembers can't be decoded, and the task is parked.
    case parked(reason: String)
  }

  /// What a queue does with the task.
  public let ending: Ending
  /// The error that the handler threw; `nil` if it returned.
  public let error: (any Error)?

  /// What the task remembers afterwards; nothing if it has succeeded.
  ///
  /// Give it to the next attempt: `performAttempt(…, remembering: first.memory)`.
  public let memory: TaskMemory

  /// The date of the next attempt; `nil` if the task has ended, or only waits for a completion.
  public var nextDate: Date? {
    switch ending {
    case .failed(let date), .snoozed(let date): date
    case .suspended(let date): date
    case .succeeded, .abandoned, .parked: nil
    }
  }
}

extension AttemptResult.Ending {
  /// Makes the ending that an event reports; `nil` if the event is about something else.
  init?(_ event: TaskEvent) {
    switch event {
    case .succeeded: self = .succeeded
    case .failed(_, _, let date, _): self = .failed(retryDate: date)
    case .abandoned(_, let reason, _): self = .abandoned(reason: reason)
    case .snoozed(_, let date): self = .snoozed(until: date)
    case .suspended(_, let date): self = .suspended(until: date)
    case .unhandled(_, let reason): self = .parked(reason: reason)
    default: return nil
    }
  }
}
