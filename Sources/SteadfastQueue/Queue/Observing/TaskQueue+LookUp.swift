public import SystemFoundation

extension TaskQueue {
  /// The number of tasks that have not ended: waiting, running, suspended, parked or paused.
  ///
  /// - Throws: any error of the store.
  public nonisolated var count: Int {
    get async throws { try await count(matching: .unfinished) }
  }

  /// Returns the number of tasks that match a filter, including tasks that have ended and are
  /// retained.
  ///
  /// - Throws: any error of the store.
  public nonisolated func count(matching filter: TaskFilter) async throws -> Int {
    try await core.opened.store.count(matching: filter)
  }

  /// Returns whether a task exists and has not ended.
  ///
  /// - Throws: any error of the store.
  public nonisolated func contains(_ id: TaskID) async throws -> Bool {
    try await core.opened.store.contains(TaskFilter(ids: [id], states: TaskState.unfinished))
  }

  /// Returns whether a task with the given name exists and has not ended.
  ///
  /// - Throws: any error of the store.
  public nonisolated func contains(name: String) async throws -> Bool {
    try await core.opened.store.contains(TaskFilter(names: [name], states: TaskState.unfinished))
  }

  /// Returns the tasks that match a filter; by default those that have not ended.
  ///
  /// - Parameters:
  ///   - filter: which tasks to return.
  ///   - id: the last task of the previous page; `nil` for the first page.
  ///   - limit: the maximum number of tasks; by default all of them. A negative number means none.
  ///   - newestFirst: whether the tasks that were enqueued last come first.
  /// - Returns: the tasks that match the filter, in the order of enqueueing, or in reverse.
  /// - Throws: any error of the store.
  public nonisolated func tasks(
    matching filter: TaskFilter = .unfinished,
    after id: TaskID? = nil,
    limit: Int? = nil,
    newestFirst: Bool = false
  ) async throws -> [TaskRecord] {
    try await core.opened.tasks(
      matching: filter,
      after: id,
      limit: limit,
      newestFirst: newestFirst
    )
  }

  /// The number of tasks in the queue's store, and what the queue has done since it was made.
  ///
  /// - Throws: any error of the store.
  public nonisolated var statistics: QueueStatistics {
    get async throws {
      try await core.opened.statistics
    }
  }

  /// How the queue is now.
  ///
  /// This does not call the store, and never waits.
  public nonisolated var health: QueueHealth { core.health }

  /// Returns the number of the queue's tasks, by name and state.
  ///
  /// To count the tasks of all queues in a store, call ``TaskQueueGroup/census(maxAge:)``.
  ///
  /// The queue keeps the last census. Concurrent calls share one look-up, and if the caller of one
  /// of them is cancelled, the others still return.
  ///
  /// - Parameter maxAge: how long ago the returned census may have been looked up; by default 10
  ///   seconds. With zero, the call looks up a new one, unless a look-up is under way.
  /// - Returns: the census.
  /// - Throws: any error of the store.
  public nonisolated func census(
    maxAge: Duration = .seconds(10)
  ) async throws -> TaskCensus {
    try await core.opened.census(maxAge: maxAge)
  }

  /// Returns the rate limits of the queue, and how much of each is used.
  ///
  /// A queue stores its limits when it first runs with them. If several versions of a program run,
  /// these are the limits of the one that began last. If that version has no limits, they are those
  /// of the version before.
  ///
  /// - Returns: the limits, in the order of the configuration. Of more limits than fit into a value
  ///   of 64 KiB, some hundreds, these are only the first ones.
  /// - Throws: any error of the store, or a ``TaskQueueError`` if a later version of this package
  ///   has stored the limits in another form.
  public nonisolated func rateLimits() async throws -> [StoredRateLimit] {
    let core = try await core.opened
    var limits = try StoredRateLimit.limits(
      await core.store.value(named: StoredRateLimit.valueName)
    )
    // Limits for the same tasks share a value.
    var values: [String: [UInt8]?] = [:]
    for index in limits.indices {
      guard let name = limits[index].startsValueName else { continue }
      if values[name] == nil {
        values.updateValue(try await core.store.value(named: name), forKey: name)
      }
      let hasOneClock = core.store.hasOneClock
      limits[index].setUse(values[name] ?? nil, at: core.now, hasOneClock: hasOneClock)
    }
    return limits
  }

  /// Returns the failures of the queue's tasks, in groups whose texts have the same shape.
  ///
  /// These are the abandoned tasks that are retained, and the tasks that have failed and have not
  /// ended. Each task counts once, with its last failure. A task that was restarted after it failed
  /// does not count.
  ///
  /// - Parameters:
  ///   - date: only tasks that have failed since this date; by default all.
  ///   - limit: how many tasks to look at: first the abandoned ones, then the others, the newest
  ///     first. A negative number means none.
  /// - Returns: the groups, and whether the limit left out any tasks.
  /// - Throws: any error of the store.
  public nonisolated func failures(
    since date: Date = .distantPast,
    limit: Int = 10_000
  ) async throws -> FailureSummary {
    let core = try await core.opened
    var counter = FailureCounter(limit: limit)
    // Two look-ups: for one of them, a database has an index of the abandoned tasks, and for the
    // other one of those that have not ended.
    for states: Set<TaskState> in [[.abandoned], TaskState.unfinished] {
      let filter = TaskFilter(states: states, failedDates: date..<max(date, .distantFuture))
      try await core.store.forEachPageFromNewest(of: filter, after: nil) { page in
        counter.add(page)
        return counter.isWhole
      }
    }
    return FailureSummary(counter)
  }

  /// Returns a task that was enqueued earlier, possibly by another process.
  ///
  /// Use it to wait for the task's outcome, or to cancel the task.
  ///
  /// - Returns: the task; `nil` if it no longer exists.
  /// - Throws: any error of the store.
  public nonisolated func task(_ id: TaskID) async throws -> EnqueuedTask? {
    try await core.opened.task(id)
  }
}

/// Lists the tasks of a store, one page at a time.
extension Persistence {
  /// The number of tasks per page, small enough not to delay other users of the store.
  private var pageSize: Int { 500 }

  /// Looks up all tasks, one page at a time, and counts them.
  public func census(at now: Date) async throws -> TaskCensus {
    var rows: [TaskCensus.Row] = []
    var limit = 10_000
    let own = TaskIDGenerator.latest(before: now)
    try await forEachPage(of: TaskFilter(queue: nil), after: nil, tasksUpTo: own) { page in
      rows += page.map { TaskCensus.Row(counting: $0, at: now) }
      guard rows.count > limit else { return }
      rows = TaskCensus(date: now, rows: rows).rows
      limit = 2 * rows.count + 10_000
    }
    return TaskCensus(date: now, rows: rows)
  }

  /// Returns the tasks that match a filter, up to a limit; without one, those that exist now.
  ///
  /// `own` is an ID that is no less than the IDs of most tasks in the store.
  func tasks(
    matching filter: TaskFilter,
    after id: TaskID?,
    limit: Int?,
    newestFirst: Bool,
    tasksUpTo own: TaskID
  ) async throws -> [TaskRecord] {
    if let limit {
      return try await tasks(
        matching: filter,
        after: id,
        limit: max(0, limit),
        newestFirst: newestFirst
      )
    }
    var found: [TaskRecord] = []
    guard newestFirst else {
      try await forEachPage(of: filter, after: id, tasksUpTo: own) { found += $0 }
      return found
    }
    try await forEachPageFromNewest(of: filter, after: id) { page in
      found += page
      return true
    }
    return found
  }

  /// Calls the body with the tasks that match a filter, one page at a time, the newest tasks first.
  ///
  /// Tasks that are added later come before the first page, so they are left out.
  ///
  /// - Parameters:
  ///   - filter: Which tasks to list.
  ///   - id: The ID before which the first page begins.
  ///   - body: Called with the tasks of each page, which is never empty. It returns whether to go
  ///     on.
  /// - Throws: What the store throws.
  func forEachPageFromNewest(
    of filter: TaskFilter,
    after id: TaskID?,
    _ body: ([TaskRecord]) -> Bool
  ) async throws {
    var last = id
    while true {
      let page = try await tasks(
        matching: filter,
        after: last,
        limit: pageSize,
        newestFirst: true
      )
      guard let id = page.last?.id, body(page) else { return }
      last = id
    }
  }

  /// Calls the body with the tasks that match a filter and exist now, one page at a time.
  ///
  /// Most tasks that are added later are skipped, so the call ends even if tasks are added all the
  /// time.
  ///
  /// - Parameters:
  ///   - filter: Which tasks to list.
  ///   - id: The ID after which the first page begins.
  ///   - own: An ID that is no less than the IDs of most tasks in the store.
  ///   - body: Called with the tasks of a page, of which there is at least one.
  /// - Throws: What the store and the body throw.
  func forEachPage(
    of filter: TaskFilter,
    after id: TaskID?,
    tasksUpTo own: TaskID,
    _ body: ([TaskRecord]) async throws -> Void
  ) async throws {
    // Only a few tasks can match a filter with IDs or unique keys, even if tasks are added.
    let isClosed = filter.ids != nil || filter.uniqueKeys != nil
    let end = isClosed ? TaskID.last : try await lastID(inQueue: filter.queue, orUpTo: own)
    var last = id
    while true {
      let page = try await tasks(matching: filter, after: last, limit: pageSize)
      let records = page.filter { $0.id <= end }
      // A store may return fewer tasks than the limit, so only an empty page ends the list.
      guard let id = records.last?.id else { return }
      try await body(records)
      guard records.count == page.count else { return }
      last = id
    }
  }

  /// Returns an ID that is no less than those of the tasks in the store, but less than those of
  /// most tasks that are enqueued from now on.
  ///
  /// Usually, `own` is such an ID, which one look-up in the store confirms. If a task was enqueued
  /// with a clock that was ahead, this needs a few dozen look-ups.
  private func lastID(inQueue queue: String?, orUpTo own: TaskID) async throws -> TaskID {
    guard var last = try await self.id(after: own, inQueue: queue) else { return own }
    // Search in growing steps for an ID after all tasks. Then find the last task by binary search.
    var end = UInt64.max
    var step: UInt64 = 1 << 16
    while end == .max, last.high < .max - step {
      if let next = try await self.id(
        after: TaskID(high: last.high + step, low: .max),
        inQueue: queue
      ) {
        last = next
        step = step > .max / 4 ? step : step * 2
      } else {
        end = last.high + step
      }
    }
    while last.high < end {
      let middle = last.high + (end - last.high) / 2
      if let next = try await self.id(after: TaskID(high: middle, low: .max), inQueue: queue),
        next.high <= end
      {
        last = next
      } else {
        end = middle
      }
    }
    return TaskID(high: end, low: .max)
  }

  /// Returns the ID of the first task whose ID is greater than the given one.
  private func id(after id: TaskID, inQueue queue: String?) async throws -> TaskID? {
    try await tasks(matching: TaskFilter(queue: queue), after: id, limit: 1).first?.id
  }
}

extension TaskID {
  /// The greatest possible ID.
  fileprivate static var last: TaskID { TaskID(high: .max, low: .max) }
}
