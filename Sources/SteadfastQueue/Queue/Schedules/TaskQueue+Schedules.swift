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
  /// occurrence begins, the queue stores the following one, which waits until the first has ended.
  /// So no occurrence is lost in a crash, and if several processes use the store, only one of them
  /// adds the next occurrence. The handler gets the date from ``TaskContext/occurrence``.
  ///
  /// Call this at each launch. If the schedule is already stored and has not changed, the call does
  /// nothing. If its rule, zone or spread has changed, the next date is determined again, counted
  /// from the last one; the change itself does not cause an occurrence. If anything else has
  /// changed, a waiting occurrence keeps its date. An occurrence that has started continues
  /// unchanged.
  ///
  /// A schedule stays until ``unschedule(_:)`` is called, even if the application no longer adds
  /// it. An occurrence has no unique key, even if the payload's type defines one.
  ///
  /// - Parameters:
  ///   - name: the schedule's name: 1 to 255 bytes of UTF-8 without control characters.
  ///   - rule: the rule for the dates. It is stored with the identifier of its time zone. If a
  ///     process has no time zone with that identifier, the schedule is parked there
  ///     (``TaskEvent/scheduleParked(_:reason:)``).
  ///   - payload: the payload that is passed to the handler, the same each time. Keep it small: the
  ///     whole schedule must fit in 64,500 bytes.
  ///   - missed: what to do about dates at which the task could not be performed.
  ///   - spread: the maximum delay of an occurrence after its date. Each installation has its own
  ///     delay, which is always the same, so that not all installations start at the same time.
  ///   - overlaps: whether an occurrence may start while the previous one is still being performed.
  ///     If not, which is the default, dates during that time are missed.
  ///   - options: how the schedule's tasks are performed. A date, a delay, an expiry date,
  ///     dependencies and options for unique keys are not allowed.
  /// - Throws: a ``TaskQueueError`` with the code ``TaskQueueError/Code/invalidArgument`` if an
  ///   argument is invalid, or with ``TaskQueueError/Code/nameTaken`` if the store can't
  ///   distinguish the name from that of another schedule, which is very rare; what the payload's
  ///   encoding and the store throw.
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

  /// Removes a schedule, and its occurrence unless that has started.
  ///
  /// An occurrence that has started continues, and is the last one. The call also removes a
  /// schedule that can't be decrypted or decoded, but then takes longer, because it searches all
  /// tasks for the occurrence.
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
  /// This includes schedules that another process, or an earlier version of the application, has
  /// added.
  ///
  /// - Throws: What the store throws.
  public nonisolated func schedules() async throws -> [TaskSchedule] {
    try await core.opened.schedules.allSchedules()
  }

  /// Returns the next dates of a schedule, starting with the date of its next occurrence.
  ///
  /// The dates are those of the rule. With a spread, occurrences start later.
  ///
  /// - Parameters:
  ///   - name: the schedule's name.
  ///   - count: the number of dates to return.
  /// - Returns: The dates; none if there is no schedule with this name, or if the schedule is
  ///   parked.
  /// - Throws: What the store throws.
  public nonisolated func occurrences(of name: String, count: Int) async throws -> [Date] {
    try await core.opened.schedules.nextDates(of: name, count: count)
  }
}
