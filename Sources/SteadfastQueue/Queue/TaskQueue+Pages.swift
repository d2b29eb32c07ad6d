import Synchronization

/// Requests for all tasks that match a filter.
extension TaskQueue {
  /// How many tasks are listed, or changed, at a time.
  ///
  /// They are few enough that other users of the store notice no delay.
  private static var pageSize: Int { 500 }

  /// Asks something of all tasks that match a filter and exist now.
  ///
  /// - Returns: The number of tasks that it was done to.
  nonisolated func ask(_ directive: Directive, of filter: TaskFilter) async throws -> Int {
    try await open()
    var count = 0
    try await forEachPage(of: filter, after: nil) { page in
      count += try await ask(directive, of: page, matching: filter)
    }
    return count
  }

  /// Calls the body with the tasks that match a filter and exist now, a page at a time.
  ///
  /// Callers that add tasks all the time can't make it go on for ever.
  nonisolated func forEachPage(
    of filter: TaskFilter,
    after id: TaskID?,
    _ body: ([TaskRecord]) async throws -> Void
  ) async throws {
    // A filter with IDs or unique keys lists few tasks: new ones can't make the loop go on.
    let isClosed = filter.ids != nil || filter.uniqueKeys != nil
    let end = isClosed ? TaskID.last : try await lastID(inQueue: filter.queue)
    var last = id
    while true {
      let page = try await store.tasks(matching: filter, after: last, limit: Self.pageSize)
      let records = page.filter { $0.id <= end }
      // A store may return fewer than it was asked for, so only an empty page is the last one.
      guard let id = records.last?.id else { return }
      try await body(records)
      guard records.count == page.count else { return }
      last = id
    }
  }

  /// Asks something of a page of tasks, and returns the number of tasks that it was done to.
  private nonisolated func ask(
    _ directive: Directive,
    of page: some Sequence<TaskRecord>,
    matching filter: TaskFilter
  ) async throws -> Int {
    let now = now
    let records = page.filter { !directive.isMet(by: $0, now: now) }
    let results = try await store(records.map { change(directive, of: $0) }, for: records)
    var count = 0
    for (record, result) in zip(records, results) {
      if case .duplicate = result { continue }
      if result.isDone {
        count += 1
      } else if try await askAgain(directive, of: record, matching: filter) {
        count += 1
      }
    }
    return count
  }

  /// Asks something of a task that has changed since it was listed, or is being performed.
  ///
  /// If the task is of another queue of the group, that queue asks it: it may perform the task.
  ///
  /// - Returns: Whether the task was there, matched the filter, and it was done to it.
  private nonisolated func askAgain(
    _ directive: Directive,
    of listed: TaskRecord,
    matching filter: TaskFilter
  ) async throws -> Bool {
    // The store knows which queue the filter means, and a task stays in its queue.
    var filter = filter
    filter.queue = nil
    guard let owner = owner(of: listed), let record = try await owner.record(of: listed.id),
      filter.matches(record)
    else { return false }
    return try await owner.askUnlessKeyIsHeld(directive, of: record.id)
  }

  /// Returns the queue whose task a record is; `nil` if this process does not have it.
  private nonisolated func owner(of record: TaskRecord) -> TaskQueue? {
    guard let name = otherQueue(of: record) else { return self }
    return backing.group?.members.queue(named: name)
  }

  /// Does what `ask(_:of:)` does, but leaves a task alone whose unique key another one has.
  private nonisolated func askUnlessKeyIsHeld(
    _ directive: Directive,
    of id: TaskID
  ) async throws -> Bool {
    do {
      return try await askOpened(directive, of: id)
    } catch let error as TaskQueueError where error.code == .duplicate {
      return false
    }
  }

  /// Returns an ID that is not less than that of any task in the store.
  ///
  /// It is less than the IDs of most tasks that are enqueued from now on. Usually that takes one
  /// look at the store. If a clock was ahead, or is ahead in another process, it takes a few dozen.
  private nonisolated func lastID(inQueue queue: String?) async throws -> TaskID {
    let now = now
    let own = generators.latestID(before: now)
    guard var last = try await id(after: own, inQueue: queue) else { return own }
    // Growing steps lead beyond all tasks. Then a binary search finds the last task.
    var end = UInt64.max
    var step: UInt64 = 1 << 16
    while end == .max, last.high < .max - step {
      if let next = try await id(after: TaskID(high: last.high + step, low: .max), inQueue: queue) {
        last = next
        step = step > .max / 4 ? step : step * 2
      } else {
        end = last.high + step
      }
    }
    while last.high < end {
      let middle = last.high + (end - last.high) / 2
      if let next = try await id(after: TaskID(high: middle, low: .max), inQueue: queue),
        next.high <= end
      {
        last = next
      } else {
        end = middle
      }
    }
    return TaskID(high: end, low: .max)
  }

  /// Returns the ID of the first task after another.
  private nonisolated func id(after id: TaskID, inQueue queue: String?) async throws -> TaskID? {
    try await store.tasks(matching: TaskFilter(queue: queue), after: id, limit: 1).first?.id
  }
}

extension TaskID {
  /// The greatest possible ID.
  fileprivate static var last: TaskID { TaskID(high: .max, low: .max) }
}
