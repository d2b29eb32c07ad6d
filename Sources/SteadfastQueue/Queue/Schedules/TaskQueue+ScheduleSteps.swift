#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// Makes the steps of schedules, each of which goes on to the next date.
extension TaskQueue {
  /// Returns the step that follows from an occurrence; `nil` if it is not the current one.
  nonisolated func step(
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
  nonisolated func owner(of key: ScheduleKey) -> TaskQueue? { queue(named: key.queue) }

  /// Returns the queue whose task a record is; `nil` if this process does not have it.
  nonisolated func owner(of record: TaskRecord) -> TaskQueue? {
    queue(named: otherQueue(of: record))
  }

  /// Returns the queue of the group with a name, or this one without a name.
  private nonisolated func queue(named name: String?) -> TaskQueue? {
    guard let name else { return self }
    return backing.group?.members.queue(named: name)
  }

  /// Returns the name of the queue whose task a record is, if that is another one.
  nonisolated func otherQueue(of record: TaskRecord) -> String? {
    guard record.queue != backing.group?.queue ?? "" else { return nil }
    return TaskQueueGroup.name(ofStoredName: record.queue)
  }

  /// Returns the step to the next date of a schedule, whatever has become of its occurrence.
  nonisolated func step(
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
  nonisolated func step(
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

  private nonisolated func occurrence(
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
  nonisolated func storedSchedule(
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
  nonisolated func scheduleValue(_ key: ScheduleKey) async throws -> ScheduleValue? {
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
