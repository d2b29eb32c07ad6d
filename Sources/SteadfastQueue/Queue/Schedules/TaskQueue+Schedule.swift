#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// Recurring tasks.
extension TaskQueue {
  /// Makes a schedule, by which a task is performed again and again.
  ///
  /// ```swift
  /// let rule = try ScheduleRule.daily(at: .time(2, 30), in: berlin)
  /// try await queue.schedule("nightly", rule, Report())
  /// ```
  ///
  /// The schedule is stored, with the task of its next date, its *occurrence*. Whatever ends an
  /// occurrence adds the next one in the same change of the store: success, failure without retries
  /// left, cancellation. So a crash loses none, and of several processes on one store only one adds
  /// it. ``TaskContext/occurrence`` has the date.
  ///
  /// Call this at each launch. The same schedule once more changes nothing. If its rule, zone or
  /// spread has changed, the next date is found again, counted from the last one; nothing is
  /// performed because of the change. If anything else has changed, the occurrence that waits keeps
  /// its date. One that has begun goes on as it is.
  ///
  /// A schedule stays until ``unschedule(_:)``, also if the application does not make it any more.
  /// No occurrence has a unique key, even if the payload's type gives one.
  ///
  /// - Parameters:
  ///   - name: the schedule's name: 1 to 255 bytes of UTF-8 without control characters.
  ///   - rule: the dates. Its zone is stored by its identifier. A process that can't make the zone
  ///     again parks the schedule (``TaskEvent/scheduleParked(_:reason:)``).
  ///   - payload: what the handler is given, the same each time; a few thousand bytes at most, for
  ///     with all else they must fit in 64,500 bytes.
  ///   - missed: what becomes of dates on which the task could not be performed.
  ///   - spread: how long after the date an occurrence may begin, at most. Each installation has a
  ///     time of its own, always the same, so that not all begin at once.
  ///   - overlaps: whether an occurrence is performed while the one before is still under way; by
  ///     default, dates that come during that are missed.
  ///   - options: how its tasks are performed. A date, a delay, an expiry date, dependencies and
  ///     what concerns unique keys make no sense here.
  /// - Throws: a ``TaskQueueError`` with the code ``TaskQueueError/Code/invalidArgument``, or with
  ///   ``TaskQueueError/Code/nameTaken`` if the name looks like that of another schedule to the
  ///   store, which is very rare; what the payload's encoding and the store throw.
  public nonisolated func schedule<Payload: TaskPayload>(
    _ name: String,
    _ rule: ScheduleRule,
    _ payload: Payload,
    missed: MissedOccurrences = .once(),
    spread: Duration = .zero,
    overlaps: Bool = false,
    options: TaskOptions = TaskOptions()
  ) async throws {
    try Self.check(schedule: name)
    try missed.check()
    try TaskQueueError.check(delay: spread, "spread")
    let task = try TaskTemplate(
      Payload.taskName,
      StoredPayload(payload),
      recurringOptions(of: Payload.self, options)
    )
    let definition = StoredSchedule.Definition(
      rule,
      missed,
      spread: spread,
      overlaps: overlaps,
      task
    )
    handlers.zones.add(rule.zone)
    try await open()
    let delay = try await delay(of: name, within: spread)
    try Self.check(StoredSchedule(name, definition, delay: delay, made: now))
    try await repeating(name) { attempt in
      try await put(name, definition, rule, delay, attempt)
    }
  }

  /// Removes a schedule, and its occurrence if that waits.
  ///
  /// An occurrence that has begun goes on, and is the last one. A schedule that can't be opened or
  /// read is removed, too; then the call goes through all tasks to find its occurrence.
  ///
  /// - Parameter name: the schedule's name.
  /// - Returns: Whether there was a schedule with this name.
  /// - Throws: What the store throws.
  @discardableResult
  public nonisolated func unschedule(_ name: String) async throws -> Bool {
    try Self.check(schedule: name)
    try await open()
    let key = ScheduleKey(name)
    var wasThere = false
    try await repeating(name) { _ in
      let old: [UInt8]
      let occurrences: [TaskRecord]
      switch try await scheduleValue(key) {
      case .schedule(let schedule, let bytes):
        guard schedule.name == name else { return true }
        old = bytes
        occurrences = try await waitingOccurrences(of: schedule)
      case .unreadable(let bytes, _):
        old = bytes
        occurrences = try await waitingOccurrences(of: key)
      case nil: return true
      }
      wasThere = true
      var changes: [TaskChange] = [.setValue(named: key.valueName, from: old, to: nil)]
      changes += try await indexChanges(removing: key)
      return try await store(changes, cancelling: occurrences)
    }
    return wasThere
  }

  /// Makes a change of a schedule again until no other process changes it in between.
  ///
  /// The body is called once more after a transient error of the store, too, and looks again.
  private nonisolated func repeating(
    _ name: String,
    _ body: (_ attempt: Int) async throws -> Bool
  ) async throws {
    var retries = 0
    for attempt in 0..<Self.mostRefusals {
      do {
        guard try await body(attempt) else { continue }
        // The answer that said what was added may have been lost.
        if retries > 0 { lookForWork() }
        return
      } catch {
        try await waitToRepeat(after: error, &retries)
      }
    }
    throw TaskQueueError.comparesWrongly(
      store,
      "the schedule '\(name)'",
      changedBy: "other processes"
    )
  }
}
