import SystemFoundation

/// Advances schedules when their occurrences start and end.
///
/// An occurrence is the task for one date of a schedule. A schedule refers to its current
/// occurrence, which waits or is being performed.
final class Occurrences: QueuePart {
  let services: QueueServices
  let upkeep: Upkeep

  init(_ upkeep: Upkeep) {
    services = upkeep.services
    self.upkeep = upkeep
  }

  /// The maximum number of times that a schedule is read again because another process changed it.
  static let maxReads = 100
}

/// A step of a schedule, which sets the schedule and adds its next occurrence.
struct ScheduleStep {
  let key: ScheduleKey
  /// The schedule after the step.
  let schedule: StoredSchedule
  /// The changes to store; the first one sets the schedule if its stored value is unchanged.
  var changes: [TaskChange]
  /// The next occurrence; `nil` if the schedule is parked.
  let next: TaskRecord?
  /// The dates up to now that were missed or skipped, to be reported.
  var catchUp: CatchUp?
  /// The stored value of the schedule after the step.
  let bytes: [UInt8]
  /// The schedule before the step; `nil` if it is new.
  var before: StoredSchedule?
  /// The index of the change that ends the previous occurrence, in the batch that contains the
  /// step.
  var endIndex: Int?
}

/// A change in a batch that ends an occurrence.
struct OccurrenceEnd {
  /// The index of the change in the batch.
  let index: Int
  let id: TaskID
  /// The name of the queue to which the occurrence belongs; `nil` for the queue that stores the
  /// batch.
  let queue: String?
  /// The creation time of the newest occurrence that the batch ends, in milliseconds.
  ///
  /// The occurrences that the batch adds get IDs with a later time, even if no time has passed.
  /// Otherwise, a call that cancels all tasks in the order of their IDs would find the occurrences
  /// that it has added, cancel them too, and never end.
  var latest: UInt64
  /// Whether the occurrence was performed or cancelled by a caller; `false` if it was missed.
  let wasHandled: Bool

  /// Describes a change in a batch; `nil` if the change does not end an occurrence.
  init?(
    _ index: Int,
    _ change: TaskChange,
    ofQueue queue: @autoclosure () -> String? = nil,
    wasHandled: Bool = true
  ) {
    guard case .end(let target, _) = change, target.id.isOccurrence else { return nil }
    self.init(index, target.id, ofQueue: queue(), wasHandled: wasHandled)
  }

  /// Returns the settlements that end an occurrence.
  ///
  /// The changes in the batch must have the order of the settlements.
  static func all(in settlements: some Collection<Settlement>) -> [OccurrenceEnd] {
    // Most batches end no occurrence.
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

  var key: ScheduleKey { id.scheduleKey(ofQueue: queue) }
}

/// Makes steps of schedules, most of which advance a schedule to its next date.
extension Occurrences {
  /// Returns the step that follows the end of an occurrence.
  ///
  /// The result is `nil` if the occurrence is not the current one of its schedule.
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

  /// Returns the step that advances a schedule to its next date.
  ///
  /// - Parameters:
  ///   - key: The key of the schedule.
  ///   - old: The stored value of the schedule.
  ///   - schedule: The schedule, decoded from `old`.
  ///   - wasHandled: Whether the current occurrence was performed or cancelled by a caller.
  ///   - attempt: A number that is added to the time in the ID of the new occurrence, so that each
  ///     try uses another ID.
  ///   - latest: A time in milliseconds; the ID of the new occurrence contains a later one.
  /// - Returns: The step.
  /// - Throws: What encoding the schedule throws.
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
  /// - Parameters:
  ///   - key: The key of the schedule.
  ///   - old: The stored value of the schedule; `nil` if it is new.
  ///   - schedule: The schedule to store, but with the ID of the previous occurrence.
  ///   - now: The current date.
  ///   - attempt: A number that is added to the time in the ID of the new occurrence, so that each
  ///     try uses another ID.
  ///   - latest: A time in milliseconds; the ID of the new occurrence contains a later one.
  ///   - availableDate: When the occurrence may start; `nil` for the schedule's date plus its
  ///     spread.
  /// - Returns: The step.
  /// - Throws: What encoding the schedule throws.
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
        // The new ID needs a later time than the previous one, even if the clock stands still or
        // was set back.
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

  /// Returns a schedule and its stored value; `nil` if there is none.
  ///
  /// The result is also `nil` if this process can't decrypt or decode the value. Observers are then
  /// notified that the schedule is parked.
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

  /// Returns the stored value of a schedule; `nil` if there is none.
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

/// The stored value of a schedule.
enum ScheduleValue {
  case schedule(StoredSchedule, [UInt8])
  /// This process can't decrypt or decode the value. To replace it, the store must compare it with
  /// these bytes.
  case unreadable([UInt8], TaskQueueError)
}

/// Decides before an attempt whether a later occurrence takes its place, because dates have passed.
extension Occurrences {
  /// What to do with an occurrence that was claimed.
  enum OccurrenceStart {
    case perform(TaskOccurrence)
    /// Make no attempt. The closure returns the change that settles the task.
    case skip((Lease) -> TaskChange)
  }

  /// Decides whether a claimed occurrence starts, or is replaced by a later one.
  ///
  /// If the store fails, this stops the run.
  func decideStart(of record: TaskRecord, at now: Date) async -> OccurrenceStart {
    do {
      if let occurrence = try await startedOccurrence(of: record, now: now) {
        return .perform(occurrence)
      }
      return .skip { .cancel(.claimed($0), at: now, retains: false) }
    } catch {
      dispatch.fail(error, to: "read a schedule")
      return .skip { .release($0) }
    }
  }

  /// Returns the information for the handler of an occurrence that starts.
  ///
  /// If the schedule allows occurrences to overlap, this also adds the next one. An occurrence that
  /// is not the current one of its schedule also starts: it was current when it was claimed, or it
  /// had ended, and a caller retried it.
  ///
  /// - Returns: The information; `nil` if the occurrence does not start, because a later one
  ///   replaces it.
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

  /// Returns whether a task is an occurrence that must not start, because a later one replaces it.
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

  /// Returns whether an occurrence has neither started nor been rescheduled by a caller.
  ///
  /// `date` is the available date with which the occurrence was added. If a rate limit with a key
  /// applies to the task, a later available date may come from that limit. So it does not count as
  /// the result of rescheduling.
  func isUntouched(_ record: TaskRecord, since date: Date) -> Bool {
    guard !record.hasBegun, record.availableDate >= date else { return false }
    guard record.availableDate > date else { return true }
    return rateLimiting?.withLimits { $0.hasKeyedLimit(for: record) } ?? false
  }
}

extension TaskRecord {
  /// Whether the record shows that an attempt at the task has started.
  var hasBegun: Bool {
    retryCount > 0 || interruptionCount > 0 || isPostponed || memorySize > 0
      || state == .suspended
  }
}

extension RateLimits {
  /// Returns whether a limit with a key applies to a task.
  fileprivate func hasKeyedLimit(for record: TaskRecord) -> Bool {
    historyIDs(of: record).contains { scopes[$0.scope].key != nil }
  }
}

/// Adds the next occurrence of a schedule in the batch that ends the current one.
extension Occurrences {
  /// The outcomes of the changes in a batch, and whether the batch was sent more than once.
  typealias StoreAnswer = (outcomes: [ChangeOutcome], wasResent: Bool)

  /// Sends a batch that ends occurrences, with the steps of their schedules, to the store.
  ///
  /// The store refuses a batch if another process has changed one of the schedules. Then this sends
  /// a batch for each occurrence, after reading the schedule again.
  func send(
    _ batch: [TaskChange],
    ending ends: [OccurrenceEnd]
  ) async throws -> StoreAnswer {
    guard let latest = ends.map(\.latest).max() else { return try await storage.send(batch) }
    let ends = ends.map { $0.replacing(latest: latest) }
    // If calls to the store are repeated after errors, send a batch for each occurrence. If the
    // answer to a batch is lost, the value of its schedule shows whether it was stored, but only if
    // there is one schedule.
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

  /// Sends a batch that ends occurrences, with the steps of all their schedules.
  ///
  /// - Returns: The answer; `nil` if the store refused the batch because a schedule has changed.
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

  /// Sends changes to the store, together with the step that follows an occurrence.
  ///
  /// The occurrence ends with these changes, or it starts and the next one may overlap with it. If
  /// another process changes the schedule in between, this reads the schedule and sends the changes
  /// again. If the occurrence is not the current one of its schedule, only `changes` are sent.
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
        // The step of an earlier try was stored, although the answer was lost.
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
        try await storage.waitToRetry(after: error, &retries)
        unanswered = step
      }
    }
    throw TaskQueueError.endlessConflictError(
      in: store,
      over: "a schedule",
      changedBy: "other processes"
    )
  }

  /// Calls a closure that sends a batch with steps of schedules, and reports the steps to
  /// observers.
  ///
  /// A step is reverted instead of reported if the store has refused the end of the previous
  /// occurrence as stale, and that occurrence has not ended.
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

  /// Reports a step to the observers of the schedule's queue, or to those of this queue if the
  /// schedule's queue is not in this process.
  private func report(_ step: ScheduleStep) {
    let owner = owner(of: step.key)
    (owner ?? self).postEvents(of: step)
    guard let next = step.next else { return }
    (owner ?? self).observers.events.postEnqueuedEvent(of: next.id)
    owner?.upkeep.reportIfUnhandled(next)
    owner?.dispatch.lookForWork(at: next.availableDate)
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

/// Reverts steps that were stored although the previous occurrence has not ended.
extension Occurrences {
  /// Reverts a step, unless the previous occurrence has ended.
  ///
  /// A batch ends an occurrence and adds the next one. If another process has claimed the
  /// occurrence in the meantime, the store skips the end as stale, but stores the step. The next
  /// occurrence must not start yet, and the other process must find the schedule unchanged when the
  /// occurrence ends.
  ///
  /// If this process dies before it has reverted the step, the next occurrence starts at its date,
  /// even if the previous one is still being performed. So the two may overlap once. When the
  /// previous one ends, no occurrence is added. So no date is lost or performed twice.
  ///
  /// Other ways don't work. A store makes a batch depend only on a value, and no value changes when
  /// an occurrence is claimed. A batch must not contain a new task that waits for a task that
  /// another change in the batch ends, or that has the unique key of such a task (``Persistence``).
  /// And if the end were stored before the step, a process that died in between would leave a
  /// schedule without an occurrence.
  ///
  /// - Returns: Whether the step was reverted. If not, the schedule has advanced.
  /// - Throws: What the store throws.
  func revertUnlessEnded(_ step: ScheduleStep) async throws -> Bool {
    guard let before = step.before, let id = before.id, try await isUnfinished(id),
      try await revert(from: step, to: before)
    else { return false }
    // If the occurrence has ended since the first check, the step prevented the next occurrence
    // from being added then. Add it now.
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
  /// - Returns: `false` if the schedule has advanced further, or if the added occurrence has
  ///   started; otherwise `true`.
  private func revert(
    from step: ScheduleStep,
    to before: StoredSchedule
  ) async throws -> Bool {
    let key = step.key
    var retries = 0
    for _ in 0..<Self.maxReads {
      guard let (current, bytes) = try await storedSchedule(for: key),
        current.id == step.schedule.id, current.date == step.schedule.date
      else { return false }
      let earlier = bytes == step.bytes ? before : current.restoringOccurrence(of: before)
      let earlierBytes = try earlier.bytes
      var changes = [TaskChange.setValue(named: key.valueName, from: bytes, to: earlierBytes)]
      if let next = step.next {
        changes.append(.cancel(.unclaimed(next.id), at: now, retains: false))
      }
      do {
        let outcomes = try await storage.send(changes).outcomes
        if outcomes.contains(.valueDiffers) { continue }
        guard outcomes.last == .stale else { return true }
        // The added occurrence has started, so it stays the current one.
        _ = try await storage.send([.setValue(named: key.valueName, from: earlierBytes, to: bytes)])
        return false
      } catch {
        try await storage.waitToRetry(after: error, &retries)
      }
    }
    return false
  }
}
