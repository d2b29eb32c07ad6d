#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// Stores schedules that the application makes, and puts occurrences back.
extension TaskQueue {
  /// Stores a schedule, unless it is stored already.
  ///
  /// - Returns: Whether it is done; `false` if another process has changed the schedule.
  nonisolated func put(
    _ name: String,
    _ definition: StoredSchedule.Definition,
    _ rule: ScheduleRule,
    _ delay: Int,
    _ attempt: Int
  ) async throws -> Bool {
    let key = ScheduleKey(name)
    let now = self.now
    let value = try await scheduleValue(key)
    guard case .schedule(let schedule, let old)? = value else {
      var unread: (bytes: [UInt8], occurrences: [TaskRecord])?
      if case .unreadable(let bytes, _)? = value {
        unread = (bytes, try await waitingOccurrences(of: key))
      }
      var new = StoredSchedule(name, definition, delay: delay, made: now)
      new.begin(now: now, rule)
      var step = try step(of: key, from: unread?.bytes, to: new, now: now, attempt: attempt)
      step.changes += try await indexChanges(adding: key)
      return try await store(step, cancelling: unread?.occurrences ?? [])
    }
    guard schedule.name == name else { throw Self.keyIsTaken(name, by: schedule.name) }
    if schedule.delay ?? 0 == delay, try schedule.definition.isSame(as: definition) {
      return try await restore(schedule, old, key, attempt)
    }
    var changed = schedule
    changed.definition = definition
    changed.delay = delay == 0 ? nil : delay
    return try await replace(schedule, old, by: changed, rule, now: now, attempt)
  }

  /// Stores a schedule that has changed, and replaces its occurrence if that waits.
  ///
  /// The occurrence keeps its date if the dates of the schedule are the same.
  ///
  /// - Returns: Whether it is done; `false` if another process has changed the schedule.
  private nonisolated func replace(
    _ before: StoredSchedule,
    _ old: [UInt8],
    by changed: StoredSchedule,
    _ rule: ScheduleRule,
    now: Date,
    _ attempt: Int
  ) async throws -> Bool {
    let key = ScheduleKey(changed.name)
    let current = try await currentOccurrence(of: changed)
    if let current, current.hasBegun || current.state == .running || current.state == .paused {
      let bytes = try changed.bytes
      let change = TaskChange.setValue(named: key.valueName, from: old, to: bytes)
      return try await store([change], cancelling: [])
    }
    var schedule = changed
    let keepsDate = before.hasDates(of: changed) && !isAhead(before, current, of: now)
    let keptDate = keepsDate ? current?.availableDate : nil
    if keptDate == nil { schedule.begin(now: now, rule) }
    var step = try step(
      of: key,
      from: old,
      to: schedule,
      now: now,
      attempt: attempt,
      availableDate: keptDate
    )
    step.before = before
    if current != nil, keptDate == nil {
      let count = before.droppedCount(now: now, handlers.zones.rule(of: before.definition))
      step.catchUp = CatchUp(next: schedule.date, skippedCount: count)
    }
    return try await store(step, cancelling: current.map { [$0] } ?? [])
  }

  /// Returns whether a schedule has gone on by a clock that was far ahead and was set right since,
  /// and its occurrence, if there is one, has the date that followed from that.
  ///
  /// Of several clocks, this one may be slow.
  private nonisolated func isAhead(
    _ schedule: StoredSchedule,
    _ current: TaskRecord?,
    of now: Date
  ) -> Bool {
    guard store.hasOneClock, schedule.isAhead(of: now) else { return false }
    guard let current else { return true }
    return current.state == .waiting && isUntouched(current, since: schedule.availableDate)
  }

  /// Puts back the occurrence of a schedule if it is missing, and goes on with one that was parked,
  /// or by a clock that was ahead.
  ///
  /// - Returns: Whether it is done; `false` if another process has changed the schedule.
  nonisolated func restore(
    _ schedule: StoredSchedule,
    _ old: [UInt8],
    _ key: ScheduleKey,
    _ attempt: Int
  ) async throws -> Bool {
    let now = self.now
    let current = try await currentOccurrence(of: schedule)
    if isAhead(schedule, current, of: now),
      case .success(let rule) = handlers.zones.rule(of: schedule.definition)
    {
      return try await replace(schedule, old, by: schedule, rule, now: now, attempt)
    }
    guard current == nil else { return true }
    let isParked = schedule.parkedReason != nil
    if isParked, case .failure = handlers.zones.rule(of: schedule.definition) {
      observers.events.post(
        .scheduleParked(schedule.name, reason: schedule.parkedReason ?? "")
      )
      return true
    }
    if schedule.availableDate > now, !isParked {
      return try await store(
        step(of: key, from: old, to: schedule, now: now, attempt: attempt),
        cancelling: []
      )
    }
    return try await store(
      step(of: key, from: old, schedule, wasHandled: true, attempt: attempt),
      cancelling: []
    )
  }

  /// Returns the current occurrence, if it is in the store and has not ended.
  private nonisolated func currentOccurrence(
    of schedule: StoredSchedule
  ) async throws -> TaskRecord? {
    guard let id = schedule.id, let record = try await record(of: id), !record.state.isFinished
    else { return nil }
    return record
  }

  /// Returns the current occurrence, if it has not begun.
  nonisolated func waitingOccurrences(of schedule: StoredSchedule) async throws -> [TaskRecord] {
    guard let record = try await currentOccurrence(of: schedule), record.isWaitingOccurrence else {
      return []
    }
    return [record]
  }

  /// Returns the occurrences that have not begun of a schedule that can't be read.
  nonisolated func waitingOccurrences(of key: ScheduleKey) async throws -> [TaskRecord] {
    var found: [TaskRecord] = []
    try await forEachPage(of: .unfinished, after: nil) { page in
      found += page.filter {
        $0.id.isOccurrence && $0.id.scheduleKey == key && $0.isWaitingOccurrence
      }
    }
    return found
  }

  private nonisolated func store(
    _ step: ScheduleStep,
    cancelling records: [TaskRecord]
  ) async throws -> Bool {
    var step = step
    step.endIndex = records.isEmpty ? nil : 0
    let answer = try await announcing([step]) {
      (try await send(step.changes, cancelling: records), false)
    }
    guard let answer else { return false }
    // An occurrence that was claimed in between goes on as it is.
    return !answer.outcomes.prefix(records.count).contains(.stale)
  }

  nonisolated func store(
    _ changes: [TaskChange],
    cancelling records: [TaskRecord]
  ) async throws -> Bool {
    try await !send(changes, cancelling: records).contains(where: \.refusesStep)
  }

  /// Sends changes that also cancel waiting occurrences, without a trace of them.
  private nonisolated func send(
    _ changes: [TaskChange],
    cancelling records: [TaskRecord]
  ) async throws -> [ChangeOutcome] {
    if records.isEmpty { return try await send(changes).outcomes }
    let now = now
    let cancellations = records.map {
      TaskChange.cancel(.unclaimed($0.id), at: now, retains: false)
    }
    return try await store(cancellations, for: records, along: changes)
  }
}

extension TaskRecord {
  /// Whether the occurrence has not begun.
  fileprivate var isWaitingOccurrence: Bool { !hasBegun && state != .running }
}
