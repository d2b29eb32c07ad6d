#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// How an attempt ended.
enum AttemptEnd: Sendable {
  /// The handler returned this.
  case returned(any Sendable)
  /// The handler threw.
  case threw(any Error)
  /// The handler threw because it was cancelled.
  case cancelled
  /// The handler was not called: the payload can't be decoded.
  case undecodable(any Error)
}

/// What happens to a task after its attempt has ended.
enum Verdict: Sendable, Equatable {
  case succeed
  /// If the backoff has chosen the date, the handler's hook may choose another one.
  case retry(at: Date, retryCount: Int, failure: TaskFailure, isByBackoff: Bool)
  case snooze(until: Date, countedFrom: Date)
  case suspend(until: Date, awaiting: [String], countedFrom: Date?)
  /// Its retries are used up. The task is abandoned, unless its handler restarts it.
  case exhausted(TaskFailure)
  case abandon(TaskFailure)
  case release
  case park(TaskFailure)
  case obey(Directive)
}
