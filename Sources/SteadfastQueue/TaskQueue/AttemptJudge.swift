import SteadfastRetry

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// How an attempt ended.
enum AttemptEnd: Sendable {
  /// The handler returned.
  case returned
  /// The handler threw.
  case threw(any Error)
  /// The handler threw because the run was cancelled.
  case cancelled
  /// The handler was not called: the payload can't be decoded.
  case undecodable(any Error)
}

/// Decides what the end of an attempt does to its task.
struct AttemptJudge: Sendable {
  private static let longestReason = 1000

  private let backoff: Backoff
  private let keepsSucceeded: Bool
  private let keepsAbandoned: Bool
  private let maxInterruptions: RetryLimit
  private var generator: SplitMix64

  init(_ configuration: TaskQueueConfiguration) {
    backoff = configuration.backoff
    keepsSucceeded = configuration.succeededRetention.keeps
    keepsAbandoned = configuration.abandonedRetention.keeps
    maxInterruptions = configuration.maxInterruptions
    generator = configuration.randomness.makeGenerator()
  }

  /// What to do in place of an attempt, if the task has interrupted too many.
  func settlementInsteadOfAttempt(_ task: ClaimedTask, now: Date) -> Settlement? {
    let count = task.record.interruptionCount
    guard !maxInterruptions.allows(retryCount: count) else { return nil }
    let times = count == 1 ? "once" : "\(count) times in a row"
    return abandonment(
      of: task,
      "its process ended \(times) while it was performed",
      now: now
    )
  }

  /// Decides what the end of an attempt does to its task.
  ///
  /// In a pass, the horizon is the date after which a retry must be, so that the pass ends.
  mutating func settlement(
    of task: ClaimedTask,
    after end: AttemptEnd,
    now: Date,
    horizon: Date? = nil
  ) -> Settlement {
    switch end {
    case .returned:
      Settlement(
        change: .succeed(task.lease, at: now, keeps: keepsSucceeded),
        record: task.record
      )
    case .cancelled:
      Settlement(change: .release(task.lease), record: task.record)
    case .undecodable(let error):
      Settlement(
        change: .park(
          task.lease,
          failure: TaskFailure(reason: Self.reason(for: error), date: now)
        ),
        record: task.record
      )
    case .threw(let snooze as TaskSnoozed):
      retry(
        task,
        at: Self.date(snooze.duration, from: now, after: horizon),
        retryCount: task.record.retryCount,
        failure: nil
      )
    case .threw(let error):
      settlement(of: task, after: error, now: now, horizon: horizon)
    }
  }

  private mutating func settlement(
    of task: ClaimedTask,
    after error: any Error,
    now: Date,
    horizon: Date?
  ) -> Settlement {
    let decision = (error as? any RetryAwareError)?.retryDecision ?? .retry
    let retryCount = task.record.retryCount + 1
    guard decision != .stop, task.record.maxRetries.allows(retryCount: retryCount) else {
      return abandonment(of: task, Self.reason(for: error), now: now)
    }
    let delay: Duration =
      switch decision {
      case .retryAfter(let delay): delay
      case .retry where !task.record.usesBackoff: .zero
      case .retry, .stop: backoffDelay(before: retryCount, of: task.record)
      }
    return retry(
      task,
      at: Self.date(delay, from: now, after: horizon),
      retryCount: retryCount,
      failure: TaskFailure(reason: Self.reason(for: error), date: now)
    )
  }

  private mutating func backoffDelay(before retry: Int, of record: TaskRecord) -> Duration {
    let previous = record.failedDate.map { record.availableDate.timeIntervalSince($0) } ?? 0
    let attempt = RetryAttempt(
      number: retry,
      delay: Self.duration(seconds: previous),
      elapsed: .zero
    )
    return backoff.delay(after: attempt, using: &generator)
  }

  private func retry(
    _ task: ClaimedTask,
    at date: Date,
    retryCount: Int,
    failure: TaskFailure?
  ) -> Settlement {
    Settlement(
      change: .retry(task.lease, availableDate: date, retryCount: retryCount, failure: failure),
      record: task.record
    )
  }

  private func abandonment(of task: ClaimedTask, _ reason: String, now: Date) -> Settlement {
    Settlement(
      change: .abandon(
        task.lease,
        failure: TaskFailure(reason: reason, date: now),
        keeps: keepsAbandoned
      ),
      record: task.record
    )
  }

  /// The text of an error, shortened.
  private static func reason(for error: any Error) -> String {
    let text = String(describing: error)
    return text.count <= longestReason ? text : text.prefix(longestReason) + "…"
  }

  private static func date(_ delay: Duration, from now: Date, after horizon: Date?) -> Date {
    let date = (now + max(0, delay / .seconds(1))).storable
    guard let horizon, date <= horizon else { return date }
    return horizon.nextStorable
  }

  private static func duration(seconds: Double) -> Duration {
    .seconds(max(0, min(seconds, 1e12)))
  }
}
