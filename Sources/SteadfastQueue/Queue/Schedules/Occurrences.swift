import Synchronization
import SystemFoundation

/// Moves schedules on when their occurrences begin and end.
final class Occurrences: QueuePart {
  let services: QueueServices
  let upkeep: Upkeep

  init(_ services: QueueServices, _ upkeep: Upkeep) {
    self.services = services
    self.upkeep = upkeep
  }

  /// How often another process may change a schedule while this one looks at it.
  static let mostLooks = 100
}

/// A step of a schedule: the changes that make it, and what to tell when they are stored.
struct ScheduleStep {
  let key: ScheduleKey
  /// The schedule after the step.
  let schedule: StoredSchedule
  /// The changes, the first of which compares and sets the schedule.
  var changes: [TaskChange]
  /// The next occurrence; `nil` if the schedule is parked.
  let next: TaskRecord?
  /// What became of the dates until now.
  var catchUp: CatchUp?
  /// The value that holds the schedule, after the step.
  let bytes: [UInt8]
  /// The schedule before the step, if there was one.
  var before: StoredSchedule?
  /// The place in the batch of the change that ends the occurrence before, if there is one.
  var endIndex: Int?
}

/// A change of a batch that ends an occurrence.
struct OccurrenceEnd {
  /// The place of the change in the batch.
  let index: Int
  let id: TaskID
  /// The name of the queue whose task it is, if another queue ends it.
  let queue: String?
  /// When the latest of the occurrences was made that end in the batch, in milliseconds.
  ///
  /// A call that goes through all tasks, in the order of their IDs, must not come to those that
  /// follow from it, even if no time passes. So they are made later.
  var latest: UInt64
  /// Whether the occurrence was performed, or a caller has cancelled it; `false` if it was missed.
  let wasHandled: Bool

  /// Returns the end of an occurrence, if a change is that.
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

  /// Returns the ends of occurrences among settlements, in whose order a batch changes the tasks.
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

  /// The schedule of which the task is an occurrence.
  var key: ScheduleKey { id.scheduleKey(ofQueue: queue) }
}

/// Makes the steps of schedules, each of which goes on to the next date.
extension Occurrences {
  /// Returns the step that follows from an occurrence; `nil` if it is not the current one.
  func step(
    after end: OccurrenceEnd,
    attempt: Int
  ) async throws -> ScheduleStep? {
    guard let (schedule, old) = try await storedSchedule(end.key), schedule.id == end.id
    else { return nil }
    return try step(
      of: end.key,
      from: old,
      schedule,
      wasHandled: end.wasHandled,
      attempt: attempt,
      after: end.latest
    )
  }

  /// Returns the queue whose schedule it is; `nil` if this process does not have it.
  func owner(of key: ScheduleKey) -> Occurrences? {
    guard let name = key.queue else { return self }
    return queue(named: name)?.occurrences
  }

  /// Returns the step to the next date of a schedule, whatever has become of its occurrence.
  func step(
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

  /// Returns the step that sets a schedule and adds an occurrence of its date, unless it is parked.
  ///
  /// The schedule still has the ID of the occurrence before. The occurrence may begin at its date
  /// with the spread, unless there is another date.
  /// The number of the attempt makes another ID, if the store has refused the last one.
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
        // The clock may stand still, or have been ahead.
        let previous = max(latest, schedule.id?.madeMilliseconds ?? 0)
        let made = max(now.milliseconds, previous + 1) + UInt64(attempt)
        next = try occurrence(of: schedule, key, availableDate, made: made, now: now)
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

  private func occurrence(
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
  /// A schedule that this process can't open or read counts as none: a process that can puts its
  /// occurrence back.
  /// - Throws: What the store throws.
  func storedSchedule(
    _ key: ScheduleKey
  ) async throws -> (schedule: StoredSchedule, bytes: [UInt8])? {
    switch try await scheduleValue(key) {
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
  func scheduleValue(_ key: ScheduleKey) async throws -> ScheduleValue? {
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
  /// It can't be opened or read; the bytes stand for it in a comparison.
  case unreadable([UInt8], TaskQueueError)
}

/// Decides, before an attempt, what becomes of the dates of a schedule that have passed.
extension Occurrences {
  /// What to do with an occurrence that was claimed.
  enum OccurrenceStart {
    case perform(TaskOccurrence)
    /// No attempt is made; the function returns the change that settles the task.
    case leaveOut((Lease) -> TaskChange)
  }

  /// Decides whether a claimed occurrence begins, or a later one takes its place.
  ///
  /// If the store fails, that stops the run.
  func start(_ record: TaskRecord, at now: Date) async -> OccurrenceStart {
    do {
      if let occurrence = try await occurrence(of: record, now: now) { return .perform(occurrence) }
      return .leaveOut { .cancel(.claimed($0), at: now, retains: false) }
    } catch {
      dispatch.fail(error, to: "say what is missed of a schedule")
      return .leaveOut { .release($0) }
    }
  }

  /// Returns what an occurrence is that begins, and adds the next one if the two may overlap.
  ///
  /// One that is not the current occurrence begins: it was current when it was claimed, or was
  /// restarted after it had ended.
  ///
  /// - Returns: The occurrence; `nil` if a later one takes its place.
  /// - Throws: What the store throws.
  private func occurrence(
    of record: TaskRecord,
    now: Date
  ) async throws -> TaskOccurrence? {
    let key = record.id.scheduleKey
    let date = record.id.occurrenceDate ?? record.availableDate
    guard let schedule = try await storedSchedule(key)?.schedule else {
      return TaskOccurrence(date: date, delay: .zero, missedCount: 0, now: now)
    }
    if isReplaced(record, schedule, now: now) { return nil }
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

  /// Returns whether a later occurrence takes the place of one that was claimed.
  ///
  /// - Throws: What the store throws.
  func isReplaced(_ record: TaskRecord, now: Date) async throws -> Bool {
    guard record.id.isOccurrence,
      let schedule = try await storedSchedule(record.id.scheduleKey)?.schedule
    else { return false }
    return isReplaced(record, schedule, now: now)
  }

  private func isReplaced(
    _ record: TaskRecord,
    _ schedule: StoredSchedule,
    now: Date
  ) -> Bool {
    guard schedule.id == record.id, isUntouched(record, since: schedule.availableDate),
      case .success(let rule) = handlers.zones.rule(of: schedule.definition)
    else { return false }
    return !schedule.mayBegin(now: now, rule)
  }

  /// Returns whether nothing has happened to an occurrence since it was added, and no caller has
  /// moved it.
  ///
  /// A limit with a key moves tasks to later dates, which are not told from those that a caller has
  /// chosen.
  func isUntouched(_ record: TaskRecord, since date: Date) -> Bool {
    guard !record.hasBegun, record.availableDate >= date else { return false }
    guard record.availableDate > date else { return true }
    return rateLimiting?.withLimits { $0.hasKey(for: record) } ?? false
  }
}

extension TaskRecord {
  /// Whether an attempt has begun, as far as the record shows.
  var hasBegun: Bool {
    retryCount > 0 || interruptionCount > 0 || isPostponed || memorySize > 0
      || state == .suspended
  }
}

extension RateLimits {
  /// Returns whether a limit with a key concerns a task.
  fileprivate func hasKey(for record: TaskRecord) -> Bool {
    places(of: record).contains { scopes[$0.scope].key != nil }
  }
}

/// Adds the next occurrence of a schedule in the same batch that ends the current one.
extension Occurrences {
  /// What the store answers to a batch.
  typealias StoreAnswer = (outcomes: [ChangeOutcome], wasResent: Bool)

  /// Has the store apply a batch that ends occurrences.
  ///
  /// The changes of a schedule compare its value, and a value that differs leaves the whole batch
  /// unstored. Then each occurrence gets a batch of its own, with another look at its schedule.
  func send(
    _ batch: [TaskChange],
    ending ends: [OccurrenceEnd]
  ) async throws -> StoreAnswer {
    guard let latest = ends.map(\.latest).max() else { return try await storage.send(batch) }
    let ends = ends.map { $0.replacing(latest: latest) }
    // What is sent again after a transient error must not depend on other schedules.
    if batch.count > 1, storage.patientStore == nil,
      let answer = try await sendTogether(batch, ends)
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
  /// - Returns: The answer; `nil` if the store has refused them, because a schedule has changed.
  private func sendTogether(
    _ batch: [TaskChange],
    _ ends: [OccurrenceEnd]
  ) async throws -> StoreAnswer? {
    var steps: [ScheduleStep] = []
    // Schedules of several queues that have the same name may have occurrences with the same ID.
    var counts: [UInt64: Int] = [:]
    for end in ends {
      let attempt = counts[end.key.bits, default: 0]
      guard var step = try await step(after: end, attempt: attempt) else { continue }
      counts[end.key.bits] = attempt + 1
      step.endIndex = end.index
      steps.append(step)
    }
    let results = try await announcing(steps) {
      try await storage.send(batch + steps.flatMap(\.changes))
    }
    guard let results else { return nil }
    return (Array(results.outcomes.prefix(batch.count)), results.wasResent)
  }

  /// Sends changes together with the step of a schedule that follows from an occurrence.
  ///
  /// It looks at the schedule again until no other process changes it in between. The occurrence
  /// has ended, or begins and may overlap with the next one. If it is not the current one, the
  /// changes are sent alone.
  func sendStep(
    after end: OccurrenceEnd,
    with changes: [TaskChange]
  ) async throws -> StoreAnswer {
    var retries = 0
    var unanswered: ScheduleStep?
    for attempt in 0..<QueueStore.mostRefusals {
      var step = try await step(after: end, attempt: attempt)
      step?.endIndex = changes.isEmpty ? nil : 0
      if step == nil, let sent = unanswered,
        try await store.value(named: end.key.valueName) == sent.bytes
      {
        // It was stored, although the answer was lost.
        willEnqueue(sent)
        tell(sent)
        unanswered = nil
      }
      guard let step else {
        if changes.isEmpty { return ([], false) }
        let answer = try await storage.send(changes)
        return (answer.outcomes, answer.wasResent || retries > 0)
      }
      do {
        let answer = try await announcing([step]) { try await storage.send(changes + step.changes) }
        if let answer { return (Array(answer.outcomes.prefix(changes.count)), retries > 0) }
      } catch {
        try await storage.waitToRepeat(after: error, &retries)
        unanswered = step
      }
    }
    throw TaskQueueError.comparesWrongly(store, "a schedule", changedBy: "other processes")
  }

  /// Sends a batch with steps of schedules, and tells them when they are stored.
  ///
  /// A step that was stored without the end of its occurrence is taken back, and not told.
  ///
  /// - Returns: The answer; `nil` if the store has refused the batch.
  func announcing(
    _ steps: [ScheduleStep],
    _ send: () async throws -> StoreAnswer
  ) async throws -> StoreAnswer? {
    for step in steps { willEnqueue(step) }
    let answer: StoreAnswer
    do {
      answer = try await send()
    } catch {
      for step in steps { didNotEnqueue(step) }
      throw error
    }
    guard !answer.outcomes.contains(where: \.refusesStep) else {
      for step in steps { didNotEnqueue(step) }
      return nil
    }
    for step in steps {
      if let index = step.endIndex, answer.outcomes[index] == .stale, try await takeBack(step) {
        didNotEnqueue(step)
      } else {
        tell(step)
      }
    }
    return answer
  }

  private func willEnqueue(_ step: ScheduleStep) {
    guard let next = step.next else { return }
    (owner(of: step.key) ?? self).observers.willEnqueue([next])
  }

  private func didNotEnqueue(_ step: ScheduleStep) {
    guard let next = step.next else { return }
    (owner(of: step.key) ?? self).observers.didNotEnqueue(CollectionOfOne(next))
  }

  /// Tells a step to the observers of the queue whose schedule it is.
  ///
  /// If this process does not have that queue, it tells them to the observers of this one.
  private func tell(_ step: ScheduleStep) {
    let owner = owner(of: step.key)
    (owner ?? self).post(step)
    guard let next = step.next else { return }
    (owner ?? self).observers.events.announce(next.id)
    owner?.upkeep.reportIfUnhandled(next)
    owner?.dispatch.becomesAvailable(at: next.availableDate)
  }

  private func post(_ step: ScheduleStep) {
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
  /// Whether the store has refused the whole batch: a schedule has changed, or an ID is taken.
  var refusesStep: Bool {
    switch self {
    case .valueDiffers, .identityTaken, .batchRefused: true
    default: false
    }
  }
}

/// Takes back steps of schedules that were stored without the ends of their occurrences.
extension Occurrences {
  /// Takes a step of a schedule back, unless its occurrence has ended all the same.
  ///
  /// A stale change is left out of its batch, and the rest of the batch is stored. If another
  /// process performs the occurrence, a later one must not be added beside it, and the end that the
  /// other process stores must find the schedule as it was.
  ///
  /// If this process dies before it is done, the later occurrence stays. It begins on its date even
  /// if the one before is still under way then, whose end adds nothing. So two may overlap once. No
  /// date is lost, and none is performed twice.
  ///
  /// The batch can't depend on the end. A store compares only values, and no value changes when an
  /// occurrence is claimed. If both occurrences had one unique key, or the later one waited for the
  /// other, it would depend on the end; but a batch must not have a new task that one of its other
  /// changes concerns in these ways (``Persistence``). And if the end were stored first, a process
  /// that died then would leave a schedule without an occurrence, which is worse.
  ///
  /// - Returns: Whether it was taken back. If not, the schedule has gone on.
  /// - Throws: What the store throws.
  func takeBack(_ step: ScheduleStep) async throws -> Bool {
    guard let before = step.before, let id = before.id, try await isUnfinished(id),
      try await goBack(from: step, to: before)
    else { return false }
    // If it has ended in between, nothing has come after it.
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

  /// Sets a schedule as it was before a step, and removes the occurrence that the step has added.
  ///
  /// - Returns: Whether it is done; `false` if the schedule has gone on, or that one has begun.
  private func goBack(
    from step: ScheduleStep,
    to before: StoredSchedule
  ) async throws -> Bool {
    let key = step.key
    var retries = 0
    for _ in 0..<Self.mostLooks {
      guard let (present, bytes) = try await storedSchedule(key),
        present.id == step.schedule.id, present.date == step.schedule.date
      else { return false }
      let earlier = bytes == step.bytes ? before : present.goingBack(to: before)
      let earlierBytes = try earlier.bytes
      var changes = [TaskChange.setValue(named: key.valueName, from: bytes, to: earlierBytes)]
      if let next = step.next {
        changes.append(.cancel(.unclaimed(next.id), at: now, retains: false))
      }
      do {
        let outcomes = try await storage.send(changes).outcomes
        if outcomes.contains(.valueDiffers) { continue }
        guard outcomes.last == .stale else { return true }
        // The later occurrence has begun, so it stays the current one.
        _ = try await storage.send([.setValue(named: key.valueName, from: earlierBytes, to: bytes)])
        return false
      } catch {
        try await storage.waitToRepeat(after: error, &retries)
      }
    }
    return false
  }
}
