import SystemFoundation

/// Advances schedules when their occurrences start and end.
final class Occurrences: QueuePart {
  let services: QueueServices
  let upkeep: Upkeep

  init(_ upkeep: Upkeep) {
    services = upkeep.services
    self.upkeep = upkeep
  }

  /// The maximum number of tries to change a schedule that other processes also change.
  static let maxReads = 100
}

/// A step of a schedule: its changes, and what to report when they are stored.
struct ScheduleStep {
  let key: ScheduleKey
  /// The schedule after the step.
  let schedule: StoredSchedule
  /// The changes, the first of which compares and sets the schedule.
  var changes: [TaskChange]
  /// The next occurrence; `nil` if the schedule is parked.
  let next: TaskRecord?
  /// The dates up to now that were missed or skipped.
  var catchUp: CatchUp?
  /// The value that holds the schedule, after the step.
  let bytes: [UInt8]
  /// The schedule before the step, if there was one.
  var before: StoredSchedule?
  /// The index in the batch of the change that ends the previous occurrence, if there is one.
  var endIndex: Int?
}

/// A change of a batch that ends an occurrence.
struct OccurrenceEnd {
  /// The index of the change in the batch.
  let index: Int
  let id: TaskID
  /// The name of the queue to which the task belongs, if another queue ends it.
  let queue: String?
  /// The creation time of the newest occurrence that ends in the batch, in milliseconds.
  ///
  /// The occurrences that the batch adds get IDs with a later time, even if no time passes.
  /// Otherwise, a call that cancels all tasks in the order of their IDs would also cancel the
  /// occurrences that it adds, and so on.
  var latest: UInt64
  /// Whether the occurrence was performed, or a caller has cancelled it; `false` if it was missed.
  let wasHandled: Bool

  /// Makes the end of an occurrence from a change; `nil` if the change does not end one.
  init?(
    _ index: Int,
    _ change: TaskChange,
    ofQueue queue: @autoclosure () -> String? = nil,
    wasHandled: Bool = true
  ) {
    let id: TaskID
    switch change {
    case .succeed(let lease, _, _), .abandon(let lease, _, _): id = lease.id
    case .cancel(let target, _, _): id = target.id
    default: return nil
    }
    guard id.isOccurrence else { return nil }
    self.init(index, id, ofQueue: queue(), wasHandled: wasHandled)
  }

  /// Returns the ends of occurrences among settlements.
  ///
  /// The batch must change the tasks in the order of the settlements.
  static func all(in settlements: some Collection<Settlement>) -> [OccurrenceEnd] {
    // Most batches have none.
    guard settlements.contains(where: { $0.record.id.isOccurrence }) else { return [] }
    return settlements.enumerated().compactMap { index, settlement in
      OccurrenceEnd(index, settlement.change, wasHandled: settlement.wasBegun)
    }
  }

  init(_ index: Int, _ id: TaskID, ofQueue queue: String? = nil, wasHandled: Bool = true) {
    self.index = index
    self.id = id
    self.queue = queue
    latest = id.madeMilliseconds
    self.wasHandled = wasHandled
  }

  func replacing(latest: UInt64) -> OccurrenceEnd {
    var end = self
    end.latest = latest
    return end
  }

  /// The key of the occurrence's schedule.
  var key: ScheduleKey { id.scheduleKey(ofQueue: queue) }
}

/// Makes the steps of schedules. Most steps advance a schedule to its next date.
extension Occurrences {
  /// Returns the step after the end of an occurrence; `nil` if the occurrence is not the current
  /// one of its schedule.
  func step(
    after end: OccurrenceEnd,
    attempt: Int
  ) async throws -> ScheduleStep? {
    guard let (schedule, old) = try await storedSchedule(for: end.key), schedule.id == end.id
    else { return nil }
    return try stepToNextDate(
      of: end.key,
      from: old,
      schedule,
      wasHandled: end.wasHandled,
      attempt: attempt,
      after: end.latest
    )
  }

  /// Returns the `Occurrences` of the queue to which a schedule belongs; `nil` if that queue is not
  /// in this process.
  func owner(of key: ScheduleKey) -> Occurrences? {
    guard let name = key.queue else { return self }
    return queue(named: name)?.occurrences
  }

  /// Returns the step of a schedule to its next date.
  ///
  /// `old` are the bytes of the schedule's value, and `wasHandled` says whether its occurrence was
  /// performed, or cancelled by a caller.
  func stepToNextDate(
    of key: ScheduleKey,
    from old: [UInt8],
    _ schedule: StoredSchedule,
    wasHandled: Bool,
    attempt: Int,
    after latest: UInt64 = 0
  ) throws -> ScheduleStep {
    let now = self.now
    let before = schedule
    var schedule = schedule
    let rule = (owner(of: key) ?? self).handlers.zones.rule(of: schedule.definition)
    let catchUp = schedule.advance(wasHandled: wasHandled, now: now, rule)
    var step = try step(
      of: key,
      from: old,
      to: schedule,
      now: now,
      attempt: attempt,
      after: latest
    )
    step.catchUp = catchUp
    step.before = before
    return step
  }

  /// Returns the step that sets a schedule and adds an occurrence for its date, unless the schedule
  /// is parked.
  ///
  /// `schedule` is the new schedule, still with the ID of the previous occurrence. The occurrence
  /// may start on the schedule's date with its spread, unless there is an `availableDate`. If the
  /// store has refused an ID, the next `attempt` makes another one.
  func step(
    of key: ScheduleKey,
    from old: [UInt8]?,
    to schedule: StoredSchedule,
    now: Date,
    attempt: Int,
    after latest: UInt64 = 0,
    availableDate: Date? = nil
  ) throws -> ScheduleStep {
    var schedule = schedule
    var next: TaskRecord?
    if schedule.parkedReason == nil {
      do throws(TaskQueueError) {
        // The clock may have stopped, or may have been ahead earlier.
        let previous = max(latest, schedule.id?.madeMilliseconds ?? 0)
        let made = max(now.milliseconds, previous + 1) + UInt64(attempt)
        next = try newOccurrence(of: schedule, key, availableDate, made: made, now: now)
      } catch {
        schedule.park(because: error.message)
      }
    }
    schedule.id = next?.id
    let bytes = try schedule.bytes
    var changes: [TaskChange] = [.setValue(named: key.valueName, from: old, to: bytes)]
    if let next {
      let record = key.queue.map(next.replacing) ?? next
      changes.append(.insert(record, onDuplicate: .keep))
    }
    return ScheduleStep(
      key: key,
      schedule: schedule,
      changes: changes,
      next: next,
      bytes: bytes
    )
  }

  private func newOccurrence(
    of schedule: StoredSchedule,
    _ key: ScheduleKey,
    _ availableDate: Date?,
    made milliseconds: UInt64,
    now: Date
  ) throws(TaskQueueError) -> TaskRecord {
    let template = schedule.definition.task
    return template.record(
      id: TaskID(occurrenceOf: key, at: schedule.date, made: milliseconds),
      payload: try template.payload,
      prohibitsBackoff: owner(of: key)?.configuration.prohibitsBackoff ?? false,
      availableDate: availableDate ?? schedule.availableDate,
      now: now
    )
  }

  /// Returns a schedule, and the bytes of its value; `nil` if there is none.
  ///
  /// This also returns `nil` for a schedule that this process can't unseal or decode. Another
  /// process that can do so will restore the schedule's occurrence.
  /// - Throws: What the store throws.
  func storedSchedule(
    for key: ScheduleKey
  ) async throws -> (schedule: StoredSchedule, bytes: [UInt8])? {
    switch try await scheduleValue(for: key) {
    case .schedule(let schedule, let bytes): return (schedule, bytes)
    case .unreadable(_, let error):
      observers.events.post(.scheduleParked(key.valueName, reason: error.message))
      return nil
    case nil: return nil
    }
  }

  /// Returns the value that holds a schedule; `nil` if there is none.
  ///
  /// - Throws: What the store throws.
  func scheduleValue(for key: ScheduleKey) async throws -> ScheduleValue? {
    let bytes: [UInt8]?
    do {
      bytes = try await store.value(named: key.valueName)
    } catch let error as TaskQueueError where error.code == .unopenedPayload {
      return .unreadable(SealedStore.unopenedValue, error)
    }
    guard let bytes else { return nil }
    do throws(TaskQueueError) {
      return .schedule(try StoredSchedule(bytes, key), bytes)
    } catch {
      return .unreadable(bytes, error)
    }
  }
}

extension Date {
  fileprivate var milliseconds: UInt64 { UInt64(max(0, timeIntervalSince1970 * 1_000)) }
}

/// The value that holds a schedule.
enum ScheduleValue {
  case schedule(StoredSchedule, [UInt8])
  /// The value can't be unsealed or decoded. To replace it, compare it with these bytes.
  case unreadable([UInt8], TaskQueueError)
}

/// Handles, before an attempt, the dates of a schedule that have passed.
extension Occurrences {
  /// What to do with an occurrence that was claimed.
  enum OccurrenceStart {
    case perform(TaskOccurrence)
    /// Makes no attempt. The function returns the change that settles the task.
    case leaveOut((Lease) -> TaskChange)
  }

  /// Decides whether a claimed occurrence starts, or is replaced by a later one.
  ///
  /// If the store fails, this stops the run.
  func decideStart(of record: TaskRecord, at now: Date) async -> OccurrenceStart {
    do {
      if let occurrence = try await startedOccurrence(of: record, now: now) {
        return .perform(occurrence)
      }
      return .leaveOut { .cancel(.claimed($0), at: now, retains: false) }
    } catch {
      dispatch.fail(error, to: "read a schedule")
      return .leaveOut { .release($0) }
    }
  }

  /// Returns the information about an occurrence that starts, and adds the next occurrence if the
  /// two may overlap.
  ///
  /// An occurrence that is no longer the schedule's current one also starts: it was current when it
  /// was claimed, or was retried after it had ended.
  ///
  /// - Returns: The information; `nil` if a later occurrence replaces this one.
  /// - Throws: What the store throws.
  private func startedOccurrence(
    of record: TaskRecord,
    now: Date
  ) async throws -> TaskOccurrence? {
    let key = record.id.scheduleKey
    let date = record.id.occurrenceDate ?? record.availableDate
    guard let schedule = try await storedSchedule(for: key)?.schedule else {
      return TaskOccurrence(date: date, delay: .zero, missedCount: 0, now: now)
    }
    if isReplaced(record, in: schedule, now: now) { return nil }
    let isCurrent = schedule.id == record.id
    if isCurrent, schedule.overlaps {
      _ = try await sendStep(after: OccurrenceEnd(0, record.id), with: [])
    }
    return TaskOccurrence(
      date: date,
      delay: .seconds(schedule.delay ?? 0),
      missedCount: isCurrent ? schedule.missedCount ?? 0 : 0,
      now: now
    )
  }

  /// Returns whether a later occurrence replaces a claimed one.
  ///
  /// - Throws: What the store throws.
  func isReplaced(_ record: TaskRecord, now: Date) async throws -> Bool {
    guard record.id.isOccurrence,
      let schedule = try await storedSchedule(for: record.id.scheduleKey)?.schedule
    else { return false }
    return isReplaced(record, in: schedule, now: now)
  }

  private func isReplaced(
    _ record: TaskRecord,
    in schedule: StoredSchedule,
    now: Date
  ) -> Bool {
    guard schedule.id == record.id, isUntouched(record, since: schedule.availableDate),
      case .success(let rule) = handlers.zones.rule(of: schedule.definition)
    else { return false }
    return !schedule.mayBegin(now: now, rule)
  }

  /// Returns whether an occurrence has not changed since it was added: it has not started, and no
  /// caller has rescheduled it.
  ///
  /// A rate limit with a key also postpones tasks. So if such a limit applies to the task, a later
  /// date does not count as rescheduled by a caller.
  func isUntouched(_ record: TaskRecord, since date: Date) -> Bool {
    guard !record.hasBegun, record.availableDate >= date else { return false }
    guard record.availableDate > date else { return true }
    return rateLimiting?.withLimits { $0.hasKeyedLimit(for: record) } ?? false
  }
}

extension TaskRecord {
  /// Whether an attempt has started, as far as the record shows.
  var hasBegun: Bool {
    retryCount > 0 || interruptionCount > 0 || isPostponed || memorySize > 0
      || state == .suspended
  }
}

extension RateLimits {
  /// Returns whether a limit with a key applies to a task.
  fileprivate func hasKeyedLimit(for record: TaskRecord) -> Bool {
    places(of: record).contains { scopes[$0.scope].key != nil }
  }
}

/// Adds the next occurrence of a schedule in the same batch that ends the current one.
extension Occurrences {
  /// The store's answer to a batch.
  typealias StoreAnswer = (outcomes: [ChangeOutcome], wasResent: Bool)

  /// Sends a batch that ends occurrences to the store.
  ///
  /// The change of a schedule compares the stored value, and the store refuses the whole batch if
  /// that value differs. Then each occurrence gets its own batch, for which its schedule is read
  /// again.
  func send(
    _ batch: [TaskChange],
    ending ends: [OccurrenceEnd]
  ) async throws -> StoreAnswer {
    guard let latest = ends.map(\.latest).max() else { return try await storage.send(batch) }
    let ends = ends.map { $0.replacing(latest: latest) }
    // If the store may fail transiently, send a batch for each occurrence: a batch that is sent
    // again must not depend on several schedules.
    if batch.count > 1, storage.retryingStore == nil,
      let answer = try await sendTogether(batch, ending: ends)
    {
      return answer
    }
    var outcomes = [ChangeOutcome?](repeating: nil, count: batch.count)
    var wasResent = false
    for end in ends {
      let answer = try await sendStep(after: end, with: [batch[end.index]])
      outcomes[end.index] = answer.outcomes[0]
      wasResent = wasResent || answer.wasResent
    }
    let others = batch.indices.filter { outcomes[$0] == nil }
    if !others.isEmpty {
      let answer = try await storage.send(others.map { batch[$0] })
      for (index, outcome) in zip(others, answer.outcomes) { outcomes[index] = outcome }
      wasResent = wasResent || answer.wasResent
    }
    return (outcomes.compactMap(\.self), wasResent)
  }

  /// Sends all changes as one batch.
  ///
  /// - Returns: The answer; `nil` if the store refused the changes because a schedule has changed.
  private func sendTogether(
    _ batch: [TaskChange],
    ending ends: [OccurrenceEnd]
  ) async throws -> StoreAnswer? {
    var steps: [ScheduleStep] = []
    // Schedules with the same name in several queues may have occurrences with the same ID.
    var counts: [UInt64: Int] = [:]
    for end in ends {
      let attempt = counts[end.key.bits, default: 0]
      guard var step = try await step(after: end, attempt: attempt) else { continue }
      counts[end.key.bits] = attempt + 1
      step.endIndex = end.index
      steps.append(step)
    }
    let results = try await reportingSteps(steps) {
      try await storage.send(batch + steps.flatMap(\.changes))
    }
    guard let results else { return nil }
    return (Array(results.outcomes.prefix(batch.count)), results.wasResent)
  }

  /// Sends changes together with the step of a schedule that follows an occurrence.
  ///
  /// This repeats reading the schedule and sending the changes until no other process changes the
  /// schedule in between. The occurrence has ended, or it starts and may overlap with the next one.
  /// If the occurrence is not the schedule's current one, only `changes` are sent.
  func sendStep(
    after end: OccurrenceEnd,
    with changes: [TaskChange]
  ) async throws -> StoreAnswer {
    var retries = 0
    var unanswered: ScheduleStep?
    for attempt in 0..<QueueStore.maxConflictRetries {
      var step = try await step(after: end, attempt: attempt)
      step?.endIndex = changes.isEmpty ? nil : 0
      if step == nil, let sent = unanswered,
        try await store.value(named: end.key.valueName) == sent.bytes
      {
        // The step was stored, although the answer was lost.
        prepareEnqueuedEvent(of: sent)
        report(sent)
        unanswered = nil
      }
      guard let step else {
        if changes.isEmpty { return ([], false) }
        let answer = try await storage.send(changes)
        return (answer.outcomes, answer.wasResent || retries > 0)
      }
      do {
        let answer = try await reportingSteps([step]) {
          try await storage.send(changes + step.changes)
        }
        if let answer { return (Array(answer.outcomes.prefix(changes.count)), retries > 0) }
      } catch {
        try await storage.waitToRepeat(after: error, &retries)
        unanswered = step
      }
    }
    throw TaskQueueError.endlessConflictError(
      in: store,
      over: "a schedule",
      changedBy: "other processes"
    )
  }

  /// Calls `send`, which sends a batch with steps of schedules, and reports the steps that it has
  /// stored.
  ///
  /// A step that was stored without the end of its occurrence is reverted, and not reported.
  ///
  /// - Returns: The answer; `nil` if the store refused the batch.
  func reportingSteps(
    _ steps: [ScheduleStep],
    _ send: () async throws -> StoreAnswer
  ) async throws -> StoreAnswer? {
    for step in steps { prepareEnqueuedEvent(of: step) }
    let answer: StoreAnswer
    do {
      answer = try await send()
    } catch {
      for step in steps { withdrawEnqueuedEvent(of: step) }
      throw error
    }
    guard !answer.outcomes.contains(where: \.refusesStep) else {
      for step in steps { withdrawEnqueuedEvent(of: step) }
      return nil
    }
    for step in steps {
      if let index = step.endIndex, answer.outcomes[index] == .stale,
        try await revertUnlessEnded(step)
      {
        withdrawEnqueuedEvent(of: step)
      } else {
        report(step)
      }
    }
    return answer
  }

  private func prepareEnqueuedEvent(of step: ScheduleStep) {
    guard let next = step.next else { return }
    (owner(of: step.key) ?? self).observers.prepareEnqueuedEvents(of: [next])
  }

  private func withdrawEnqueuedEvent(of step: ScheduleStep) {
    guard let next = step.next else { return }
    (owner(of: step.key) ?? self).observers.withdrawEnqueuedEvents(of: CollectionOfOne(next))
  }

  /// Reports a step to the observers of the queue to which the schedule belongs.
  ///
  /// If that queue is not in this process, this reports the step to the observers of this queue.
  private func report(_ step: ScheduleStep) {
    let owner = owner(of: step.key)
    (owner ?? self).postEvents(of: step)
    guard let next = step.next else { return }
    (owner ?? self).observers.events.postEnqueuedEvent(of: next.id)
    owner?.upkeep.reportIfUnhandled(next)
    owner?.dispatch.becomesAvailable(at: next.availableDate)
  }

  private func postEvents(of step: ScheduleStep) {
    let name = step.schedule.name
    if let catchUp = step.catchUp {
      if catchUp.missedCount > 0 {
        observers.events.post(
          .occurrencesMissed(
            schedule: name,
            count: catchUp.missedCount,
            madeUpBy: step.schedule.id
          )
        )
      }
      if catchUp.skippedCount > 0 {
        observers.events.post(
          .occurrencesMissed(schedule: name, count: catchUp.skippedCount, madeUpBy: nil)
        )
      }
    }
    if let reason = step.schedule.parkedReason {
      observers.events.post(.scheduleParked(name, reason: reason))
    }
  }
}

extension ChangeOutcome {
  /// Whether the store refused the whole batch, because a schedule has changed or an ID is in use.
  var refusesStep: Bool {
    switch self {
    case .valueDiffers, .identityTaken, .batchRefused: true
    default: false
    }
  }
}

/// Reverts steps of schedules that were stored without the ends of their occurrences.
extension Occurrences {
  /// Reverts a step of a schedule, unless its occurrence has ended nevertheless.
  ///
  /// The store skips a stale change, and stores the rest of the batch. If another process performs
  /// the occurrence, a later one must not be added yet. When the other process stores the end, it
  /// must find the unchanged schedule.
  ///
  /// If this process dies before the step is reverted, the later occurrence stays. It starts on its
  /// date even if the previous one is still being performed, and the end of that one adds nothing.
  /// So the two may overlap once. No date is lost, and none is performed twice.
  ///
  /// The store can't make the step depend on the end. It compares only values, and no value changes
  /// when an occurrence is claimed. The later occurrence would depend on the end if both had the
  /// same unique key, or if it waited for the earlier one. But a batch must not contain a new task
  /// that another change of the batch affects in these ways (``Persistence``). And if the end were
  /// stored first, a process that died then would leave a schedule without an occurrence, which is
  /// worse.
  ///
  /// - Returns: Whether the step was reverted. If not, the schedule has advanced.
  /// - Throws: What the store throws.
  func revertUnlessEnded(_ step: ScheduleStep) async throws -> Bool {
    guard let before = step.before, let id = before.id, try await isUnfinished(id),
      try await revert(from: step, to: before)
    else { return false }
    // If the occurrence has ended since the first check, its end has not added the next occurrence.
    // Add that occurrence now.
    if try await !isUnfinished(id) {
      let end = OccurrenceEnd(0, id, ofQueue: step.key.queue)
      _ = try await sendStep(after: end, with: [])
    }
    return true
  }

  private func isUnfinished(_ id: TaskID) async throws -> Bool {
    let filter = TaskFilter(ids: [id], queue: nil, states: TaskState.unfinished)
    return try await store.contains(filter)
  }

  /// Restores a schedule as it was before a step, and removes the occurrence that the step added.
  ///
  /// - Returns: `false` if the schedule has advanced, or that occurrence has started; otherwise
  ///   `true`.
  private func revert(
    from step: ScheduleStep,
    to before: StoredSchedule
  ) async throws -> Bool {
    let key = step.key
    var retries = 0
    for _ in 0..<Self.maxReads {
      guard let (present, bytes) = try await storedSchedule(for: key),
        present.id == step.schedule.id, present.date == step.schedule.date
      else { return false }
      let earlier = bytes == step.bytes ? before : present.restoringOccurrence(of: before)
      let earlierBytes = try earlier.bytes
      var changes = [TaskChange.setValue(named: key.valueName, from: bytes, to: earlierBytes)]
      if let next = step.next {
        changes.append(.cancel(.unclaimed(next.id), at: now, retains: false))
      }
      do {
        let outcomes = try await storage.send(changes).outcomes
        if outcomes.contains(.valueDiffers) { continue }
        guard outcomes.last == .stale else { return true }
        // The later occurrence has started, so it stays the current one.
        _ = try await storage.send([.setValue(named: key.valueName, from: earlierBytes, to: bytes)])
        return false
      } catch {
        try await storage.waitToRepeat(after: error, &retries)
      }
    }
    return false
  }
}
