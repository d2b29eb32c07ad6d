#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// Decides, before an attempt, what becomes of the dates of a schedule that have passed.
extension TaskQueue {
  /// What to do with an occurrence that was claimed.
  enum OccurrenceStart {
    case perform(TaskOccurrence)
    /// No attempt is made; the function returns the change that settles the task.
    case leaveOut((Lease) -> TaskChange)
  }

  /// Decides whether a claimed occurrence begins, or a later one takes its place.
  ///
  /// If the store fails, that stops the run.
  nonisolated func start(_ record: TaskRecord, at now: Date) async -> OccurrenceStart {
    do {
      if let occurrence = try await occurrence(of: record, now: now) { return .perform(occurrence) }
      return .leaveOut { .cancel(.claimed($0), at: now, retains: false) }
    } catch {
      fail(error, to: "say what is missed of a schedule")
      return .leaveOut { .release($0) }
    }
  }

  /// Settles an occurrence that was claimed, and is not attempted.
  ///
  /// - Returns: Whether the attempt was to be cut short.
  nonisolated func leaveOut(
    _ task: ClaimedTask,
    _ worker: Int,
    _ change: TaskChange
  ) async -> Bool {
    let isCutShort = endAttempt(of: worker).1
    let settlement = Settlement(change: change, record: task.record, wasBegun: false)
    await finish(settlement, worker, isAttempt: false)
    return isCutShort
  }

  /// Returns what an occurrence is that begins, and adds the next one if the two may overlap.
  ///
  /// One that is not the current occurrence begins: it was current when it was claimed, or was
  /// restarted after it had ended.
  ///
  /// - Returns: The occurrence; `nil` if a later one takes its place.
  /// - Throws: What the store throws.
  private nonisolated func occurrence(
    of record: TaskRecord,
    now: Date
  ) async throws -> TaskOccurrence? {
    let key = record.id.scheduleKey
    let date = record.id.occurrenceDate ?? record.availableDate
    guard let schedule = try await storedSchedule(key)?.schedule else {
      return TaskOccurrence(date: date, delay: .zero, missedCount: 0, now: now)
    }
    let isCurrent = schedule.id == record.id
    if isCurrent, record.isUntouched(since: schedule.availableDate),
      case .success(let rule) = zones.rule(of: schedule.definition),
      !schedule.mayBegin(now: now, rule)
    {
      return nil
    }
    if isCurrent, schedule.overlaps {
      _ = try await sendStep(after: OccurrenceEnd(0, record.id, wasHandled: true), with: [])
    }
    return TaskOccurrence(
      date: date,
      delay: .seconds(schedule.delay ?? 0),
      missedCount: isCurrent ? schedule.missedCount ?? 0 : 0,
      now: now
    )
  }
}

extension TaskRecord {
  /// Whether nothing has happened to an occurrence since it was added, and no caller has moved it.
  func isUntouched(since date: Date) -> Bool {
    !hasBegun && availableDate == date
  }

  /// Whether an attempt has begun, as far as the record shows.
  var hasBegun: Bool {
    retryCount > 0 || interruptionCount > 0 || isPostponed || memorySize > 0
      || state == .suspended
  }
}
