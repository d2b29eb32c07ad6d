import SystemFoundation

/// Advances schedules when their occurrences begin.
///
/// An occurrence is the task for one date of a schedule. A schedule refers to its next occurrence.
/// When that occurrence begins, the schedule advances: one batch adds the following occurrence,
/// which waits until this one has ended, and makes it the next.
final class Occurrences: QueuePart {
  let services: QueueServices
  let upkeep: Upkeep

  init(_ upkeep: Upkeep) {
    services = upkeep.services
    self.upkeep = upkeep
  }
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
}

/// Makes steps of schedules, most of which advance a schedule to its next date.
extension Occurrences {
  /// Returns the step that advances a schedule to its next date.
  ///
  /// - Parameters:
  ///   - key: The key of the schedule.
  ///   - old: The stored value of the schedule.
  ///   - schedule: The schedule, decoded from `old`.
  ///   - wasHandled: Whether the next occurrence begins or was cancelled by a caller; `false` if
  ///     its date was missed.
  ///   - attempt: A number that is added to the time in the ID of the new occurrence, so that each
  ///     try uses another ID.
  ///   - others: The tasks until whose end the new occurrence waits.
  /// - Returns: The step.
  /// - Throws: What encoding the schedule throws.
  func stepToNextDate(
    of key: ScheduleKey,
    from old: [UInt8],
    _ schedule: StoredSchedule,
    wasHandled: Bool,
    attempt: Int,
    after others: Set<TaskID>
  ) throws -> ScheduleStep {
    let now = self.now
    var schedule = schedule
    let rule = handlers.zones.rule(of: schedule.definition)
    let catchUp = schedule.advance(wasHandled: wasHandled, now: now, rule)
    var step = try step(
      of: key,
      from: old,
      to: schedule,
      now: now,
      attempt: attempt,
      after: others
    )
    step.catchUp = catchUp
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
  ///   - others: The tasks until whose end the occurrence waits.
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
    after others: Set<TaskID>,
    availableDate: Date? = nil
  ) throws -> ScheduleStep {
    var schedule = schedule
    var next: TaskRecord?
    if schedule.parkedReason == nil {
      do throws(TaskQueueError) {
        // The new ID needs a later time than the previous one, even if the clock stands still or
        // was set back.
        let previous = schedule.id?.madeMilliseconds ?? 0
        let made = max(now.milliseconds, previous + 1) + UInt64(attempt)
        let template = schedule.definition.task
        next = template.record(
          id: TaskID(occurrenceOf: key, at: schedule.date, made: made),
          payload: try template.payload,
          prohibitsBackoff: configuration.prohibitsBackoff,
          availableDate: availableDate ?? schedule.availableDate,
          after: others,
          now: now
        )
      } catch {
        schedule.park(because: error.message)
      }
    }
    schedule.id = next?.id
    let bytes = try schedule.bytes
    var changes: [TaskChange] = [.setValue(named: key.valueName, from: old, to: bytes)]
    if let next { changes.append(.insert(next, onDuplicate: .keep)) }
    return ScheduleStep(
      key: key,
      schedule: schedule,
      changes: changes,
      next: next,
      bytes: bytes
    )
  }

  /// Returns those of some tasks that have not ended.
  func unfinished(_ ids: [TaskID]) async throws -> [TaskID] {
    var found: [TaskID] = []
    for page in ids.lookUpPages {
      let filter = TaskFilter(ids: Set(page), queue: nil, states: TaskState.unfinished)
      found += try await store.tasks(matching: filter, after: nil, limit: page.count).map(\.id)
    }
    return found
  }

  /// Returns a schedule and its stored value; `nil` if there is none.
  ///
  /// The result is also `nil` if this process can't decrypt or decode the value. Observers are then
  /// notified that the schedule is parked.
  /// - Throws: What the store throws.
  func storedSchedule(
    for key: ScheduleKey
  ) async throws -> (schedule: StoredSchedule, bytes: [UInt8])? {
    schedule(from: try await scheduleValue(for: key), key)
  }

  /// Returns the schedule of a stored value; `nil` if there is none, or this process can't read it.
  ///
  /// In the latter case, observers are notified that the schedule is parked if `reportsParked` is
  /// `true`.
  func schedule(
    from value: ScheduleValue?,
    _ key: ScheduleKey,
    reportsParked: Bool = true
  ) -> (schedule: StoredSchedule, bytes: [UInt8])? {
    switch value {
    case .schedule(let schedule, let bytes): return (schedule, bytes)
    case .unreadable(_, let error):
      if reportsParked {
        observers.events.post(.scheduleParked(key.valueName, reason: error.message))
      }
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
    return bytes.map { ScheduleValue($0, key) }
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

  init(_ bytes: [UInt8], _ key: ScheduleKey) {
    do throws(TaskQueueError) {
      self = .schedule(try StoredSchedule(bytes, key), bytes)
    } catch {
      self = .unreadable(bytes, error)
    }
  }
}

/// Begins occurrences.
extension Occurrences {
  /// What to do with an occurrence that was claimed.
  enum OccurrenceStart {
    case perform(TaskOccurrence)
    /// Make no attempt. The closure returns the change that settles the task.
    case skip((Lease) -> TaskChange)
  }

  /// Decides whether a claimed occurrence starts, or is replaced by a later one.
  ///
  /// If this is the next occurrence of its schedule, the schedule advances. If the store fails,
  /// this stops the run.
  func begin(_ record: TaskRecord, at now: Date) async -> OccurrenceStart {
    do {
      if let occurrence = try await occurrence(beginningWith: record, now: now) {
        return .perform(occurrence)
      }
      return .skip { .cancel(.claimed($0), at: now, retains: false) }
    } catch {
      dispatch.fail(error, to: "advance a schedule")
      return .skip { .release($0) }
    }
  }

  /// Advances the schedule of an occurrence, if that is the schedule's next one, and returns the
  /// information for its handler.
  ///
  /// An occurrence that is not the next one begins, too: it has begun before, or it had ended, and
  /// a caller retried it. The occurrence that is added waits until this one has ended, unless they
  /// may overlap. If this process dies after this call, the added occurrence waits for the next
  /// attempt at this one.
  ///
  /// - Returns: The information; `nil` if the occurrence does not start, because a later one
  ///   replaces it.
  /// - Throws: What the store throws.
  private func occurrence(
    beginningWith record: TaskRecord,
    now: Date
  ) async throws -> TaskOccurrence? {
    let key = record.id.scheduleKey
    let date = record.id.occurrenceDate ?? record.availableDate
    for attempt in 0..<QueueStore.maxConflictRetries {
      guard let (schedule, bytes) = try await storedSchedule(for: key) else {
        return TaskOccurrence(date: date, delay: .zero, missedCount: 0, now: now)
      }
      if schedule.replaced?.contains(record.id) == true { return nil }
      let isNext = schedule.id == record.id
      let begun = schedule.begun?.id == record.id ? schedule.begun : nil
      let occurrence = TaskOccurrence(
        date: date,
        delay: .seconds(schedule.delay ?? 0),
        missedCount: (isNext ? schedule.missedCount : begun?.missedCount) ?? 0,
        now: now
      )
      guard isNext else { return occurrence }
      let isReplaced = isReplaced(record, in: schedule, now: now)
      var next = schedule
      if isReplaced {
        next.replaced = try await unfinished(schedule.replaced ?? []) + [record.id]
      } else {
        next.begun = StoredSchedule.Begun(id: record.id, missedCount: schedule.missedCount)
      }
      let step = try stepToNextDate(
        of: key,
        from: bytes,
        next,
        wasHandled: !isReplaced,
        attempt: attempt,
        after: schedule.overlaps && !isReplaced ? [] : [record.id]
      )
      // A power failure that loses the step also loses the occurrence's end.
      if try await send(step, { try await storage.persist($0, .relaxed) }) {
        return isReplaced ? nil : occurrence
      }
      // If the task was removed, nothing can wait for it. Its lease is stale, too.
      if try await storage.record(of: record.id) == nil { return nil }
    }
    throw TaskQueueError.endlessConflictError(
      in: store,
      over: "a schedule",
      changedBy: "other processes"
    )
  }

  /// Sends a step to the store, and reports it to observers.
  ///
  /// - Returns: Whether the step is stored; `false` if another process has changed the schedule.
  func send(
    _ step: ScheduleStep,
    _ send: ([TaskChange]) async throws -> [ChangeOutcome]
  ) async throws -> Bool {
    prepareEnqueuedEvent(of: step)
    let outcomes: [ChangeOutcome]
    do {
      outcomes = try await send(step.changes)
    } catch {
      withdrawEnqueuedEvent(of: step)
      throw error
    }
    guard !outcomes.contains(where: \.refusesStep) else {
      withdrawEnqueuedEvent(of: step)
      return false
    }
    report(step)
    return true
  }

  /// Returns whether a task is an occurrence that must not start, because a later one replaces it.
  ///
  /// - Throws: What the store throws.
  func isReplaced(_ record: TaskRecord, now: Date) async throws -> Bool {
    guard record.id.isOccurrence,
      let schedule = try await storedSchedule(for: record.id.scheduleKey)?.schedule
    else { return false }
    return schedule.replaced?.contains(record.id) ?? false
      || isReplaced(record, in: schedule, now: now)
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

/// Reports steps to observers.
extension Occurrences {
  private func prepareEnqueuedEvent(of step: ScheduleStep) {
    if let next = step.next { observers.prepareEnqueuedEvents(of: [next]) }
  }

  private func withdrawEnqueuedEvent(of step: ScheduleStep) {
    if let next = step.next {
      observers.withdrawEnqueuedEvents(of: CollectionOfOne(next))
    }
  }

  private func report(_ step: ScheduleStep) {
    postEvents(of: step)
    guard let next = step.next else { return }
    observers.events.postEnqueuedEvent(of: next.id)
    upkeep.reportIfUnhandled(next)
    dispatch.lookForWork(at: next.availableDate)
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
  /// Whether the store refused the whole batch, because a schedule has changed, an ID is in use, or
  /// a task until whose end an occurrence should wait is no longer there.
  var refusesStep: Bool {
    switch self {
    case .valueDiffers, .identityTaken, .unmetDependency, .batchRefused: true
    default: false
    }
  }
}
