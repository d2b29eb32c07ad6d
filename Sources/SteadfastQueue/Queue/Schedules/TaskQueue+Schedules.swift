public import SystemFoundation

/// Recurring tasks.
extension TaskQueue {
  /// Adds a schedule, which performs a task repeatedly.
  ///
  /// ```swift
  /// let rule = try ScheduleRule.daily(at: .time(2, 30), in: berlin)
  /// try await queue.schedule("nightly", rule, Report())
  /// ```
  ///
  /// The schedule is stored together with the task for its next date, its *occurrence*. When an
  /// occurrence ends, the next one is added in the same change of the store, whether the occurrence
  /// succeeded, failed without retries left, or was cancelled. So a crash loses no occurrence, and
  /// if several processes use the store, only one of them adds it. ``TaskContext/occurrence`` has
  /// the date.
  ///
  /// Call this at each launch. If the schedule is unchanged, the call changes nothing. If its rule,
  /// zone or spread has changed, the next date is determined again, counted from the last one; the
  /// change itself does not cause an occurrence. If anything else has changed, a waiting occurrence
  /// keeps its date. An occurrence that has started continues unchanged.
  ///
  /// A schedule stays until ``unschedule(_:)`` is called, even if the application no longer adds
  /// it. No occurrence has a unique key, even if the payload's type defines one.
  ///
  /// - Parameters:
  ///   - name: the schedule's name: 1 to 255 bytes of UTF-8 without control characters.
  ///   - rule: the rule for the dates. The identifier of its time zone is stored. A process that
  ///     can't make the zone from it parks the schedule (``TaskEvent/scheduleParked(_:reason:)``).
  ///   - payload: the payload that is passed to the handler, the same each time. It has a few
  ///     thousand bytes at most, because the whole schedule must fit in 64,500 bytes.
  ///   - missed: what to do with dates on which the task could not be performed.
  ///   - spread: the maximum time after its date at which an occurrence may start. Each
  ///     installation has its own time, which is always the same, so that not all installations
  ///     start at once.
  ///   - overlaps: whether an occurrence is performed while the previous one is still being
  ///     performed; by default, dates in that time are missed.
  ///   - options: how its tasks are performed. A date, a delay, an expiry date, dependencies and
  ///     options for unique keys are not allowed here.
  /// - Throws: a ``TaskQueueError`` with the code ``TaskQueueError/Code/invalidArgument``, or with
  ///   ``TaskQueueError/Code/nameTaken`` if the store can't distinguish the name from that of
  ///   another schedule, which is very rare; what the payload's encoding and the store throw.
  public nonisolated func schedule<Payload: TaskPayload>(
    _ name: String,
    _ rule: ScheduleRule,
    _ payload: Payload,
    missed: MissedOccurrences = .once(),
    spread: Duration = .zero,
    overlaps: Bool = false,
    options: TaskOptions = TaskOptions()
  ) async throws {
    try await core.opened.schedules.schedule(
      name,
      rule,
      payload,
      missed,
      spread,
      overlaps: overlaps,
      options
    )
  }

  /// Removes a schedule, and its occurrence if that has not started.
  ///
  /// An occurrence that has started continues, and is the last one. A schedule that can't be
  /// unsealed or decoded is removed, too; then the call searches all tasks for its occurrence.
  ///
  /// - Parameter name: the schedule's name.
  /// - Returns: Whether a schedule with this name existed.
  /// - Throws: What the store throws.
  @discardableResult
  public nonisolated func unschedule(_ name: String) async throws -> Bool {
    try await core.opened.schedules.unschedule(name)
  }
}

/// Lists schedules and their dates.
extension TaskQueue {
  /// Returns the schedules of the queue, in the order of their names.
  ///
  /// They include schedules that another process, or an earlier version of the application, has
  /// added.
  /// - Throws: What the store throws.
  public nonisolated func schedules() async throws -> [TaskSchedule] {
    try await core.opened.schedules.allSchedules()
  }

  /// Returns the next dates of a schedule, starting with the date of its current occurrence.
  ///
  /// The dates are those of the rule, without the spread.
  ///
  /// - Parameters:
  ///   - name: the schedule's name.
  ///   - count: the number of dates to return.
  /// - Returns: The dates; none if there is no such schedule, or if it is parked.
  /// - Throws: What the store throws.
  public nonisolated func occurrences(of name: String, count: Int) async throws -> [Date] {
    try await core.opened.schedules.nextDates(of: name, count: count)
  }
}
