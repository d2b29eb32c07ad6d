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
  nonisolated func isReplaced(_ record: TaskRecord, now: Date) async throws -> Bool {
    guard record.id.isOccurrence,
      let schedule = try await storedSchedule(record.id.scheduleKey)?.schedule
    else { return false }
    return isReplaced(record, schedule, now: now)
  }

  private nonisolated func isReplaced(
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
  nonisolated func isUntouched(_ record: TaskRecord, since date: Date) -> Bool {
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
