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
    guard let old = try await store.value(named: key.valueName) else {
      var new = StoredSchedule(name, definition, delay: delay, made: now)
      new.begin(now: now, rule)
      var step = try step(from: nil, to: new, now: now, attempt: attempt)
      step.changes += try await indexChanges(adding: key)
      return try await store(step, cancelling: nil)
    }
    var schedule = try StoredSchedule(old, key)
    guard schedule.name == name else { throw Self.keyIsTaken(name, by: schedule.name) }
    if schedule.delay ?? 0 == delay, schedule.definition == definition {
      return try await restore(schedule, old, key, attempt)
    }
    let before = schedule
    schedule.definition = definition
    schedule.delay = delay == 0 ? nil : delay
    let current = try await currentOccurrence(of: schedule)
    if let current, current.hasBegun || current.state == .running || current.state == .paused {
      let bytes = try schedule.bytes
      let change = TaskChange.setValue(named: key.valueName, from: old, to: bytes)
      return try await store([change], cancelling: nil)
    }
    schedule.begin(now: now, rule)
    var step = try step(from: old, to: schedule, now: now, attempt: attempt)
    step.before = before
    return try await store(step, cancelling: current)
  }

  /// Puts back the occurrence of a schedule if it is missing, and goes on with one that was parked.
  ///
  /// - Returns: Whether it is done; `false` if another process has changed the schedule.
  nonisolated func restore(
    _ schedule: StoredSchedule,
    _ old: [UInt8],
    _ key: ScheduleKey,
    _ attempt: Int
  ) async throws -> Bool {
    if try await currentOccurrence(of: schedule) != nil { return true }
    let now = self.now
    let isParked = schedule.parkedReason != nil
    if isParked, case .failure = zones.rule(of: schedule.definition) {
      observers.events.post(
        .scheduleParked(schedule.name, reason: schedule.parkedReason ?? "")
      )
      return true
    }
    if schedule.availableDate > now, !isParked {
      return try await store(
        step(from: old, to: schedule, now: now, attempt: attempt),
        cancelling: nil
      )
    }
    return try await store(
      step(from: old, schedule, wasHandled: true, attempt: attempt),
      cancelling: nil
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
  nonisolated func waitingOccurrence(
    of schedule: StoredSchedule
  ) async throws -> TaskRecord? {
    guard let record = try await currentOccurrence(of: schedule), !record.hasBegun,
      record.state != .running
    else { return nil }
    return record
  }

  private nonisolated func store(
    _ step: ScheduleStep,
    cancelling record: TaskRecord?
  ) async throws -> Bool {
    var step = step
    step.endIndex = record == nil ? nil : 0
    let answer = try await announcing([step]) {
      (try await send(step.changes, cancelling: record), false)
    }
    guard let answer else { return false }
    // An occurrence that was claimed in between goes on as it is.
    return record == nil || answer.outcomes[0] != .stale
  }

  nonisolated func store(
    _ changes: [TaskChange],
    cancelling record: TaskRecord?
  ) async throws -> Bool {
    let answer = try await announcing([]) {
      (try await send(changes, cancelling: record), false)
    }
    return answer != nil
  }

  /// Sends changes that also cancel a waiting occurrence, without a trace of it.
  private nonisolated func send(
    _ changes: [TaskChange],
    cancelling record: TaskRecord?
  ) async throws -> [ChangeOutcome] {
    guard let record else { return try await send(changes).outcomes }
    let cancel = TaskChange.cancel(.unclaimed(record.id), at: now, retains: false)
    return try await store([cancel], for: [record], along: changes)
  }
}
