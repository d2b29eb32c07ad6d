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

/// What is to become of a task whose attempt has ended.
enum Verdict: Sendable, Equatable {
  case succeed
  /// The hook may choose another date if the backoff has chosen this one.
  case retry(at: Date, retryCount: Int, failure: TaskFailure, isByBackoff: Bool)
  case snooze(until: Date)
  /// Its retries are used up: it is given up, unless its handler wants it begun anew.
  case exhausted(TaskFailure)
  case abandon(TaskFailure)
  case release
  case park(TaskFailure)
  case obey(Directive)
}
