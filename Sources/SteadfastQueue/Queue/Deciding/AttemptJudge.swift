import SteadfastRetry
import SystemFoundation

/// Decides what happens to a task when its attempt ends.
struct AttemptJudge: Sendable {
  /// The maximum length of the reason of a failure, in bytes of UTF-8.
  static let longestReason = 4096

  /// When a decision is made, and during which pass.
  struct Moment {
    var now: Date
    /// The cutoff of the pass, which performs only tasks that are available by then.
    ///
    /// A retry during the pass gets a later date, so that the pass ends. The cutoff is `nil` if the
    /// queue runs until it is stopped.
    var cutoff: Date?
    /// How long the handler ran; `nil` if it was not called.
    var ran: Duration?

    /// Returns the date after a delay, or the first date after the cutoff if that is later.
    func date(after delay: Duration) -> Date {
      afterCutoff(now.storableDate(after: delay))
    }

    /// Returns the given date, or the first date after the cutoff if that is later.
    func afterCutoff(_ date: Date) -> Date {
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
  private let holder: String

  /// Makes a judge.
  ///
  /// - Parameters:
  ///   - configuration: the queue's configuration.
  ///   - holder: who makes the attempts, for other processes; empty if there are none.
  init(_ configuration: TaskQueueConfiguration, holder: String = "") {
    self.holder = holder
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

  /// Returns the failure of a task that was interrupted too often or has expired; otherwise `nil`.
  func failurePreventingAttempt(of record: TaskRecord, now: Date) -> TaskFailure? {
    let count = record.interruptionCount
    if !maxInterruptions.allows(retryCount: count) {
      let times = count == 1 ? "once" : "\(count) times in a row"
      return TaskFailure(
        reason: "the process ended \(times) while it performed the task",
        date: now,
        attempt: FailedAttempt(.interrupted)
      )
    }
    guard record.hasExpired(by: now) || record.isDisplaced else { return nil }
    let last = record.lastError.map { "; the last error was: \($0)" } ?? ""
    return TaskFailure(
      reason: storable("the task expired before it was done\(last)"),
      date: now,
      attempt: FailedAttempt(.expired)
    )
  }

  /// Decides what happens to a task after an attempt.
  ///
  /// This may call code of the application: the configuration's `errorText` and `backoff`, and the
  /// error's `retryDecision`.
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
    case (.undecodable(let error), nil):
      .park(failure(.parked, text(of: error), at: Moment(now: moment.now)))
    case (.threw(let snooze as TaskSnoozed), nil):
      .snooze(until: moment.date(after: snooze.duration), countedFrom: moment.now)
    case (.threw(let error), nil):
      verdictOnFailure(of: record, because: error, at: moment, using: &generator)
    }
  }

  /// Decides what happens to a task whose attempt was ended by the handler's request to suspend,
  /// park or release the task.
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
      // If the clock was set back by less than a second, the pass keeps its cutoff, which is then
      // later than now. A date up to the cutoff would make the pass repeat the task at once.
      return .suspend(
        until: moment.afterCutoff(end),
        awaiting: names,
        countedFrom: origin
      )
    case .parked(let reason):
      return .park(failure(.parked, storable(reason), at: moment))
    case .released: return .release
    }
  }

  /// Returns the record of a task whose attempt made progress.
  ///
  /// The configuration decides whether its number of retries starts at zero again.
  func recordWithRenewedRetries(_ record: TaskRecord) -> TaskRecord {
    guard progressRenewsRetries, record.retryCount > 0 else { return record }
    var record = record
    record.retryCount = 0
    return record
  }

  /// Decides whether a task whose handler threw an error is retried, and when.
  private func verdictOnFailure(
    of record: TaskRecord,
    because error: any Error,
    at moment: Moment,
    using generator: inout SplitMix64
  ) -> Verdict {
    let kind = error is TimeoutError ? FailedAttempt.Kind.timedOut : .failed
    let failure = failure(kind, text(of: error), at: moment)
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

  /// Returns the verdict that starts a task over although its retries are used up.
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

  private func failure(
    _ kind: FailedAttempt.Kind,
    _ reason: String,
    at moment: Moment
  ) -> TaskFailure {
    let attempt = FailedAttempt(kind, duration: moment.ran, holder: holder)
    return TaskFailure(reason: reason, date: moment.now, attempt: attempt)
  }

  /// Returns the text of an error as it is stored.
  func text(of error: any Error) -> String { storable(errorText(error)) }

  /// Returns a string without NULs, and shortened to ``longestReason``.
  private func storable(_ text: String) -> String {
    let text = text.withoutNUL
    guard text.utf8.count > Self.longestReason else { return text }
    return text.prefix(ofLength: Self.longestReason - 4) + "…"
  }

  // MARK: Settlements

  /// Returns the settlement of a claimed task, with the change that carries out a verdict.
  func settlement(
    _ verdict: Verdict,
    of task: ClaimedTask,
    value: (any Sendable)? = nil,
    timing: TaskTiming? = nil,
    handler: AnyHandler? = nil,
    usedMemory: Bool = false,
    now: Date
  ) -> Settlement {
    var lease = task.lease
    lease.command = task.record.command
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
      case .park(let failure):
        .park(lease, failure: failure, knownVersion: handler?.payloadVersion)
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

  /// Returns the settlement that carries out a command, after the store has refused another
  /// settlement because of the command.
  ///
  /// If this process has cancelled the task, and the command only pauses it, or withdraws a pause,
  /// the task stays cancelled.
  func settlement(
    of refused: Settlement,
    _ lease: Lease,
    carryingOut command: StoredCommand,
    now: Date
  ) -> Settlement {
    var lease = lease
    lease.command = command
    let change: TaskChange =
      if let end = refused.change.end, end.state == .cancelled,
        command == .pause || command == .release
      {
        .end(.claimed(lease), end)
      } else {
        change(carryingOut: TaskCommand(command), of: refused.record, .claimed(lease), now: now)
      }
    return Settlement(
      change: change,
      record: refused.record,
      timing: refused.timing,
      // An occurrence that is cancelled before it has begun has not advanced its schedule.
      wasBegun: refused.wasBegun || change.end != nil,
      usedMemory: refused.usedMemory
    )
  }

  /// Returns whether a task that has succeeded is retained, by the configuration or because its
  /// unique key still prevents duplicates.
  private func retainsSuccess(of record: TaskRecord, now: Date) -> Bool {
    retainsSucceeded || record.isDeduplicating(at: now)
  }

  /// Returns the change that carries out a command.
  ///
  /// Removing a task that has not ended cancels it without retaining it. Observers are notified of
  /// that, but not of the removal of a task that has already ended.
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
  /// If `isByBackoff`, the handler may still choose another date.
  case retry(at: Date, retryCount: Int, failure: TaskFailure, isByBackoff: Bool)
  case snooze(until: Date, countedFrom: Date)
  case suspend(until: Date, awaiting: [String], countedFrom: Date?)
  /// The task has no retries left, and is abandoned unless its handler restarts it.
  case exhausted(TaskFailure)
  case abandon(TaskFailure)
  case release
  case park(TaskFailure)
  case carryOut(TaskCommand)
}
