import SteadfastQueue

#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
public import Foundation
#endif

/// How one attempt at a task ended, and what a queue makes of it.
public struct AttemptResult: Sendable {
  /// What a queue makes of the end of an attempt.
  public enum Ending: Sendable, Hashable {
    /// The handler returned: the task is done.
    case succeeded
    /// The handler threw, and the task is tried again at this date.
    case failed(retryDate: Date)
    /// The task is given up: the handler said so, or it has no retries left. The reason is the text
    /// of the error.
    case abandoned(reason: String)
    /// The handler put the task off until this date, without counting a retry.
    case snoozed(until: Date)
  }

  /// What a queue makes of it.
  public let ending: Ending
  /// What the handler threw; `nil` if it returned.
  public let error: (any Error)?

  /// When the task is performed next; `nil` if it has ended.
  public var nextDate: Date? {
    switch ending {
    case .failed(let date), .snoozed(let date): date
    case .succeeded, .abandoned: nil
    }
  }
}

extension AttemptResult.Ending {
  /// What an event says of the end of an attempt; `nil` if it is about something else.
  init?(_ event: TaskEvent) {
    switch event {
    case .succeeded: self = .succeeded
    case .failed(_, _, let date, _): self = .failed(retryDate: date)
    case .abandoned(_, let reason, _): self = .abandoned(reason: reason)
    case .snoozed(_, let date): self = .snoozed(until: date)
    default: return nil
    }
  }
}
