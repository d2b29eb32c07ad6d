import SteadfastRetry
import SystemFoundation

/// Decides what happens to a task when its attempt ends.
struct AttemptJudge: Sendable {
  /// The maximum length of a reason, in bytes of UTF-8.
  static let longestReason = 4096

  /// The date of a decision.
  struct Moment {
    var now: Date
    /// In a pass, the cutoff, after which retries and snoozes must end, so that the pass ends.
    var cutoff: Date?

    /// Returns the date after a delay; in a pass, a date after the cutoff.
    func date(after delay: Duration) -> Date {
      notBeforeCutoff(now.storableDate(after: delay))
    }

    func notBeforeCutoff(_ date: Date) -> Date {
      guard let cutoff, date <= cutoff else { return date }
      return cutoff.nextStorable.storable
    }
  }

  private let backoff: Backoff
  private let prohibitsBackoff: Bool
  let maxInterruptions: RetryLimit
  private let errorText: @Sendable (any Error) -> String
  private let retainsSucceeded: Bool
  private let retainsAbandoned: Bool
  private let retainsCancelled: Bool
  private let progressRenewsRetries: Bool

  init(_ configuration: TaskQueueConfiguration) {
    backoff = configuration.backoff
    prohibitsBackoff = configuration.prohibitsBackoff
    maxInterruptions = configuration.maxInterruptions
    errorText = configuration.errorText
    retainsSucceeded = configuration.succeededRetention.retains
    retainsAbandoned = configuration.abandonedRetention.retains
    retainsCancelled = configuration.cancelledRetention.retains
    progressRenewsRetries = configuration.progressRenewsRetries
  }

  // MARK: Verdicts

  /// Returns why no attempt may begin: too many interruptions, or the task has expired.
  func failureInsteadOfAttempt(_ record: TaskRecord, now: Date) -> TaskFailure? {
    let count = record.interruptionCount
    if !maxInterruptions.allows(retryCount: count) {
      let times = count == 1 ? "once" : "\(count) times in a row"
      return TaskFailure(
        reason: "its process ended \(times) while it was performed",
        date: now
      )
    }
    guard record.hasExpired(by: now) || record.isDisplaced else { return nil }
    let last = record.lastError.map { "; the last error was: \($0)" } ?? ""
    return TaskFailure(reason: storable("it expired before it was done\(last)"), date: now)
  }

  /// Decides what happens to a task after an attempt.
  ///
  /// It calls the user's code: for the texts of errors, for retry decisions, and for a custom
  /// backoff.
  func verdict(
    on record: TaskRecord,
    after end: AttemptEnd,
    command: TaskCommand?,
    at moment: Moment,
    using generator: inout SplitMix64
  ) -> Verdict {
    switch (end, command) {
    case (.returned, _): .succeed
    case (_, let command?): .carryOut(command)
    case (.cancelled, nil): .release
    case (.undecodable(let error), nil): .park(failure(error, at: moment))
    case (.threw(let snooze as TaskSnoozed), nil):
      .snooze(until: moment.date(after: snooze.duration), countedFrom: moment.now)
    case (.threw(let error), nil):
      verdictOnFailure(of: record, because: error, at: moment, using: &generator)
    }
  }

  /// Decides what happens to a task whose attempt has chosen its own ending.
  func verdict(
    on record: TaskRecord,
    after ending: AttemptMemory.Ending,
    command: TaskCommand?,
    at moment: Moment
  ) -> Verdict {
    if let command { return .carryOut(command) }
    switch ending {
    case .suspended(let date, let names, let origin):
      // Wake the task when it expires, so that it is abandoned then.
      let end = min(date, record.expiryDate ?? .distantFuture).storable
      // If the clock was set back by less than a second, the pass keeps its cutoff. A date before
      // the cutoff would make the pass perform the task repeatedly until that date.
      return .suspend(
        until: moment.notBeforeCutoff(end),
        awaiting: names,
        countedFrom: origin
      )
    case .parked(let reason):
      return .park(TaskFailure(reason: storable(reason), date: moment.now))
    case .released: return .release
    }
  }

  /// Returns the task with its retries reset, as they are after an attempt that made progress.
  func recordWithRenewedRetries(_ record: TaskRecord) -> TaskRecord {
    guard progressRenewsRetries, record.retryCount > 0 else { return record }
    var record = record
    record.retryCount = 0
    return record
  }

  /// Decides whether a task that has failed is retried, and when.
  private func verdictOnFailure(
    of record: TaskRecord,
    because error: any Error,
    at moment: Moment,
    using generator: inout SplitMix64
  ) -> Verdict {
    let failure = failure(error, at: moment)
    let decision = (error as? any RetryAwareError)?.retryDecision ?? .retry
    let retryCount = record.nextRetryCount
    if decision == .stop { return .abandon(failure) }
    guard record.maxRetries.allows(retryCount: retryCount) else { return .exhausted(failure) }
    let usesBackoff = record.usesBackoff && !prohibitsBackoff
    let delay: Duration =
      switch decision.choice {
      case .retryAfter(let delay): delay
      case .retry where !usesBackoff: .zero
      case .retry, .stop: backoffDelay(before: retryCount, of: record, using: &generator)
      }
    let date = moment.date(after: delay)
    // If the task will have expired by the retry's date, abandon it now instead of waiting.
    if record.hasExpired(by: date) { return .abandon(failure) }
    return .retry(
      at: date,
      retryCount: retryCount,
      failure: failure,
      isByBackoff: decision == .retry && usesBackoff
    )
  }

  /// Returns the verdict on a task with no retries left that its handler wants to restart.
  func verdictForRestart(
    of record: TaskRecord,
    after failure: TaskFailure,
    at moment: Moment,
    using generator: inout SplitMix64
  ) -> Verdict {
    let usesBackoff = record.usesBackoff && !prohibitsBackoff
    let delay =
      usesBackoff ? backoffDelay(before: 1, of: record, using: &generator) : .zero
    return .retry(
      at: moment.date(after: delay),
      retryCount: 0,
      failure: failure,
      isByBackoff: usesBackoff
    )
  }

  private func backoffDelay(
    before retry: Int,
    of record: TaskRecord,
    using generator: inout SplitMix64
  ) -> Duration {
    let previous =
      retry > 1 ? record.failedDate.map { record.availableDate.timeIntervalSince($0) } ?? 0 : 0
    let attempt = RetryAttempt(
      number: retry,
      delay: .seconds(max(0, min(previous, 1e12))),
      elapsed: .zero
    )
    return backoff.delay(after: attempt, using: &generator)
  }

  private func failure(_ error: any Error, at moment: Moment) -> TaskFailure {
    TaskFailure(reason: text(of: error), date: moment.now)
  }

  /// The text of an error, in the form that is stored.
  func text(of error: any Error) -> String { storable(errorText(error)) }

  /// Returns the text in the form that is stored: without NULs, and cut to the longest reason.
  private func storable(_ text: String) -> String {
    var text = text.withoutNUL
    guard text.utf8.count > Self.longestReason else { return text }
    text.makeContiguousUTF8()
    // A character that is cut in two becomes a replacement character, which is removed.
    let head = String(decoding: text.utf8.prefix(Self.longestReason - 4), as: UTF8.self)
    return (head.last == "\u{FFFD}" ? head.dropLast() : head[...]) + "…"
  }

  // MARK: Settlements

  /// Returns the settlement with the change that a verdict makes.
  func settlement(
    _ verdict: Verdict,
    of task: ClaimedTask,
    value: (any Sendable)? = nil,
    timing: TaskTiming? = nil,
    handler: AnyHandler? = nil,
    usedMemory: Bool = false,
    now: Date
  ) -> Settlement {
    let lease = task.lease
    let change: TaskChange =
      switch verdict {
      case .succeed: .succeed(lease, at: now, retains: retainsSuccess(of: task.record, now: now))
      case .retry(let date, let retryCount, let failure, _):
        .retry(lease, availableDate: date, retryCount: retryCount, failure: failure)
      case .snooze(let date, let origin):
        .retry(
          lease,
          availableDate: date,
          retryCount: task.record.retryCount,
          failure: nil,
          countedFrom: origin
        )
      case .suspend(let date, let names, let origin):
        .suspend(lease, until: date, awaiting: names, countedFrom: origin)
      case .exhausted(let failure), .abandon(let failure):
        .abandon(
          lease,
          failure: failure,
          retains: retainsAbandoned || task.record.mayBlockOrder
        )
      case .release: .release(lease)
      case .park(let failure): .park(lease, failure: failure)
      case .carryOut(let command):
        change(carryingOut: command, of: task.record, .claimed(lease), now: now)
      }
    return Settlement(
      change: change,
      record: task.record,
      value: value,
      timing: timing,
      handler: handler,
      usedMemory: usedMemory
    )
  }

  /// Returns whether a task that has succeeded is retained.
  ///
  /// It also is if its unique key continues to deduplicate new tasks for a while.
  private func retainsSuccess(of record: TaskRecord, now: Date) -> Bool {
    retainsSucceeded || record.isDeduplicating(at: now)
  }

  /// Returns the change that carries out a command.
  ///
  /// Removing a task that has not ended cancels it without retaining it. Only the removal of a task
  /// that has already ended is not reported.
  func change(
    carryingOut command: TaskCommand,
    of record: TaskRecord,
    _ target: TaskTarget,
    now: Date
  ) -> TaskChange {
    switch (command, target) {
    case (.cancel, _):
      .cancel(target, at: now, retains: retainsCancelled || record.mayBlockOrder)
    case (.pause, _): .pause(target)
    case (.restart(let forgets), _): .restart(target, availableDate: now, forgets: forgets)
    case (.reschedule(let date?), _) where date > now: .reschedule(target, availableDate: date)
    case (.reschedule, _): .reschedule(target, availableDate: now, countedFrom: now)
    case (.remove, _) where record.state.isFinished: .remove(target.id)
    case (.remove, _): .cancel(target, at: now, retains: false)
    case (.release, .claimed(let lease)): .release(lease)
    case (.release, .unclaimed(let id)): .resume(id)
    }
  }
}

/// How an attempt ended.
enum AttemptEnd: Sendable {
  /// The handler returned this value.
  case returned(any Sendable)
  /// The handler threw this error.
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
  case carryOut(TaskCommand)
}
