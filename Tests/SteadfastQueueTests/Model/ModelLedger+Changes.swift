import Foundation
import SteadfastRetry
import SteadfastTesting

@testable import SteadfastQueue

/// Checks that each change that a queue stores follows from earlier events.
extension ModelLedger {
  mutating func recordStored(_ change: TaskChange) {
    switch change {
    case .insert(let record, _): recordInsertion(of: record)
    case .move(let target, let move): recordMove(move, of: target)
    case .end(.claimed(let lease), let end) where end.state == .succeeded:
      requireEnd(of: lease, "succeeds", { if case .returned = $0 { true } else { false } })
      // An attempt that was cut short may end at any later time.
      require(
        !hasTimedOut(lease.id, surely: true) || entries[lease.id]?.asked != [] || runsWereCut,
        "\(label(lease.id)) succeeds after its time limit"
      )
      changeTally(of: lease.id) { $0.succeeded += 1 }
      entries[lease.id]?.checkpoint = nil
      self.end(lease.id, .succeeded, event: "succeeded")
    case .end(.claimed(let lease), let end) where end.state == .abandoned:
      guard let failure = end.failure else {
        return require(false, "\(label(lease.id)) is abandoned without a failure")
      }
      recordAbandonment(of: lease, failure)
      self.end(lease.id, .abandoned(reason: failure.reason), event: "abandoned")
    case .end(let target, let end):
      require(end.state == .cancelled, "\(label(target.id)) ends as \(end.state) without a lease")
      requireRequest(for: target, [.cancel, .remove])
      self.end(target.id, .cancelled, event: "cancelled")
    case .remove(let id):
      requireRequest(for: .unclaimed(id), [.remove])
      removed(id)
    case .update(let id, _): recordRequest(for: .unclaimed(id), .update, "updated")
    case .extend(let lease, _): require(false, "the claim of \(label(lease.id)) is extended")
    case .command(let id, _, _): require(false, "a command is stored with \(label(id))")
    case .memory(.remember(let lease, let name, _)): checkMemory(of: lease, name)
    case .memory(.suspend(let lease, let date, _, _)): recordSuspension(of: lease, until: date)
    case .memory(.complete(let id, let name, let value)): recordCompletion(of: id, name, value)
    case .broad, .setValue: break
    }
  }

  private mutating func recordMove(_ move: TaskMove, of target: TaskTarget) {
    switch move.kind {
    case .retry:
      guard case .claimed(let lease) = target, let date = move.availableDate,
        let retryCount = move.retryCount
      else { return require(false, "\(label(target.id)) is retried without a lease") }
      if let failure = move.failure {
        recordFailure(of: lease, date, retryCount, failure)
      } else {
        recordSnooze(of: lease, retryCount)
      }
      release(lease.id)
    case .release:
      guard case .claimed(let lease) = target else {
        return require(false, "\(label(target.id)) is released without a lease")
      }
      requireCutShort(lease, "is released", .pause)
      // A task whose attempt has not started is released without an event.
      if entries[lease.id]?.attempt != nil { entries[lease.id]?.expectedEvents.append("released") }
      release(lease.id)
    case .park: require(false, "\(label(target.id)) is parked")
    case .pause: recordRequest(for: target, .pause, "paused")
    case .resume: recordRequest(for: target, .resume, "resumed")
    case .restart:
      recordRequest(for: target, move.forgetsMemory ? .startOver : .restart, "restarted")
      if move.forgetsMemory { entries[target.id]?.checkpoint = nil }
      entries[target.id]?.hasEnded = false
      entries[target.id]?.failureCount = 0
    case .reschedule: recordRequest(for: target, .reschedule, "rescheduled")
    }
  }

  private mutating func recordInsertion(of record: TaskRecord) {
    known.append(record.id)
    require(entries[record.id] == nil, "\(label(record.id)) is stored twice")
    entries[record.id] = Entry(
      asked: record.tags.reduce(into: []) { $0.formUnion(askedTags[$1] ?? []) }
    )
    entries[record.id]?.queue = record.queue
    expect("enqueued", of: record.id)
    entries[record.id]?.number = record.modelWork?.number ?? 0
    guard let work = record.modelWork, let specification = specifications[work.number] else {
      return require(false, "\(label(record.id)) was stored, but not enqueued")
    }
    let (task, date) = (specification.task, specification.enqueued)
    requireDependencies(of: record, specification)
    require(record.queue == specification.queue, "\(label(record.id)) is in another queue")
    entries[record.id]?.follower = record.dependencies.follower
    let isAsEnqueued =
      record.maxRetries == task.maxRetries && record.usesBackoff == task.usesBackoff
      && record.priority.rawValue == task.priority && record.uniqueKey == task.key
      && record.tags == Set([task.tag].compactMap(\.self)) && work.acts == task.acts
      && record.timeLimit == task.timeLimit.map { .seconds($0) }
      && task.delay.map { abs(record.availableDate.timeIntervalSince(date) - Double($0)) < 1e-3 }
        ?? (record.availableDate == record.createdDate)
    require(isAsEnqueued, "\(label(record.id)) was enqueued as \(task), and stored as \(record)")
  }

  mutating func recordTakeover(by id: TaskID, _ change: TaskChange) {
    guard case .insert(let record, onDuplicate: .replace) = change,
      record.uniqueKey == table.record(of: id)?.uniqueKey
    else { return require(false, "\(label(id)) was replaced by \(change)") }
    require(entries[id]?.lease == nil, "\(label(id)) is replaced during its attempt")
    entries[id]?.number = record.modelWork?.number ?? 0
    for tag in record.tags { entries[id]?.asked.formUnion(askedTags[tag] ?? []) }
    expect("updated", of: id)
  }

  /// Records that a task failed and was superseded by its successor.
  mutating func recordSuperseding(_ change: TaskChange, by id: TaskID) {
    guard case .move(.claimed(let lease), let move) = change, move.kind == .retry,
      let entry = entries[lease.id],
      entries[id]?.hasEnded == false
    else { return require(false, "\(label(id)) supersedes a task by \(change)") }
    expect("superseded", of: lease.id)
    entries[lease.id]?.hasEnded = true
    entries[lease.id]?.successor = id
    entries[id]?.failureCount = entry.failureCount
  }

  // MARK: Ends of attempts

  func attempt(_ lease: Lease) -> Attempt? {
    entries[lease.id].flatMap { $0.lease == lease ? $0.attempt : nil }
  }

  func requireEnd(of lease: Lease, _ verb: String, _ fits: (End) -> Bool) {
    let attempt = attempt(lease)
    require(
      attempt?.end.map(fits) ?? false,
      "\(label(lease.id)) \(verb), but its attempt is \(attempt.map { "\($0)" } ?? "unknown")"
    )
  }

  /// Whether the attempt had reached its time limit when the handler ended.
  ///
  /// Exactly at the limit, both results are allowed, and this returns `!surely`.
  private func hasTimedOut(_ id: TaskID, surely: Bool) -> Bool {
    guard let entry = entries[id], let limit = entry.claimed?.timeLimit,
      let attempt = entry.attempt, let ended = attempt.ended
    else { return false }
    let time = attempt.began.duration(to: ended)
    return surely ? time > limit : time >= limit
  }

  private mutating func recordFailure(
    of lease: Lease,
    _ date: Date,
    _ retryCount: Int,
    _ failure: TaskFailure
  ) {
    let id = lease.id
    changeTally(of: id) { $0.failed += 1 }
    entries[id]?.failureCount += 1
    entries[id]?.expectedEvents.append("failed")
    guard let record = entries[id]?.claimed else {
      return require(false, "\(label(id)) fails, but is not claimed")
    }
    let timedOut = hasTimedOut(id, surely: false)
    requireEnd(of: lease, "is retried") { end in
      switch end {
      case .failed, .retryAfter: true
      case .returned, .abandoned, .snoozed, .cancelled: timedOut
      case .suspended: false
      }
    }
    require(
      attempt(lease)?.wasCancelled == false || timedOut,
      "a cancellation of \(label(id)) counts as a failure"
    )
    require(retryCount == record.retryCount + 1, "\(label(id)) counts \(retryCount) retries")
    require(record.maxRetries.allows(retryCount: retryCount), "\(label(id)) has too many attempts")
    require(
      record.maxRetries.allows(retryCount: entries[id]?.failureCount ?? 0),
      "\(label(id)) is retried after too many failures"
    )
    requireDelay(date.timeIntervalSince(failure.date), lease, record, timedOut: timedOut)
  }

  private func requireDelay(
    _ found: Double,
    _ lease: Lease,
    _ record: TaskRecord,
    timedOut: Bool
  ) {
    let backoff = record.usesBackoff ? Double(configuration.backoffSeconds + record.retryCount) : 0
    var allowed = [backoff]
    if case .retryAfter(let seconds)? = attempt(lease)?.end {
      allowed = timedOut ? [backoff, Double(seconds)] : [Double(seconds)]
    }
    require(
      isDelay(found, of: allowed),
      "\(label(lease.id)) is retried after \(found) s, expected: \(allowed)"
    )
  }

  /// Whether a delay, in seconds, is one of the allowed delays.
  ///
  /// A pass may delay a retry until after its cutoff, at most one second after the clock's date.
  private func isDelay(_ found: Double, of allowed: [Double]) -> Bool {
    allowed.contains { abs(found - $0) < 1e-3 || (found > $0 && found <= $0 + 1.001) }
  }

  private mutating func recordSnooze(of lease: Lease, _ retryCount: Int) {
    let id = lease.id
    changeTally(of: id) { $0.snoozed += 1 }
    entries[id]?.expectedEvents.append("snoozed")
    requireEnd(of: lease, "is snoozed") { if case .snoozed = $0 { true } else { false } }
    require(attempt(lease)?.wasCancelled == false, "\(label(id)) is snoozed after a cancellation")
    require(retryCount == entries[id]?.claimed?.retryCount, "\(label(id)): a snooze is counted")
  }

  private mutating func recordAbandonment(of lease: Lease, _ failure: TaskFailure) {
    let id = lease.id
    changeTally(of: id) { $0.abandoned += 1 }
    guard let record = entries[id]?.claimed else {
      return require(false, "\(label(id)) is abandoned, but is not claimed")
    }
    let isLast = !record.maxRetries.allows(retryCount: record.retryCount + 1)
    // In this model, a retry is delayed by at most 20 seconds.
    let mayExpire = record.expiryDate.map { $0 <= failure.date + 20 } ?? false
    let timedOut = hasTimedOut(id, surely: false)
    let isRight =
      switch attempt(lease)?.end {
      case nil: record.expiryDate.map { $0 <= failure.date } ?? false
      case .abandoned: true
      case .failed, .retryAfter: isLast || mayExpire
      case .returned, .snoozed, .cancelled: timedOut && (isLast || mayExpire)
      case .suspended: false
      }
    require(isRight, "\(label(id)) is abandoned (\(failure.reason)) after \(attempt(lease).debug)")
    require(
      attempt(lease)?.wasCancelled != true || timedOut,
      "\(label(id)) is abandoned because it was cancelled"
    )
  }

  // MARK: Control

  private mutating func recordRequest(
    for target: TaskTarget,
    _ request: ModelOperation.Request,
    _ event: String
  ) {
    requireRequest(for: target, [request])
    expect(event, of: target.id)
    if case .claimed = target { release(target.id) }
  }

  private func requireRequest(
    for target: TaskTarget,
    _ requests: Set<ModelOperation.Request>
  ) {
    require(
      entries[target.id]?.asked.isDisjoint(with: requests) == false,
      "\(label(target.id)) is changed without one of the requests \(requests)"
    )
    if case .claimed(let lease) = target { requireCutShort(lease, "is changed", nil) }
  }

  /// Requires that the attempt, if there was one, was cancelled and ended with an error.
  private func requireCutShort(
    _ lease: Lease,
    _ verb: String,
    _ request: ModelOperation.Request?
  ) {
    guard let attempt = attempt(lease) else { return }
    let timedOut = hasTimedOut(lease.id, surely: false)
    requireEnd(of: lease, verb) { end in
      if case .returned = end { timedOut } else { true }
    }
    guard request != nil else { return }
    require(
      attempt.wasCancelled || entries[lease.id]?.wasPaused ?? false || timedOut,
      "\(label(lease.id)) \(verb), but its attempt was not cancelled"
    )
  }
}

extension ModelLedger.Entry {
  fileprivate var wasPaused: Bool { asked.contains(.pause) || asked.contains(.resume) }
}

extension Optional where Wrapped == ModelLedger.Attempt {
  fileprivate var debug: String { map { "\($0)" } ?? "no attempt" }
}
