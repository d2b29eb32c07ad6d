public import SystemFoundation

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
    try await core.opened.schedules.unschedule(name)
  }
}

/// Looking at schedules, and at the beginning of a run.
extension TaskQueue {
  /// Returns the schedules of the queue, in the order of their names.
  ///
  /// They include those that another process, or an earlier version of the application, has made.
  /// - Throws: What the store throws.
  public nonisolated func schedules() async throws -> [TaskSchedule] {
    try await core.opened.schedules.all()
  }

  /// Returns the next dates of a schedule: that of its current occurrence, and those after it.
  ///
  /// The dates are those of the rule, without the spread.
  ///
  /// - Parameters:
  ///   - name: the schedule's name.
  ///   - count: how many dates to return.
  /// - Returns: The dates; none if there is no such schedule, or if it is parked.
  /// - Throws: What the store throws.
  public nonisolated func occurrences(of name: String, count: Int) async throws -> [Date] {
    try await core.opened.schedules.dates(of: name, count: count)
  }
}
