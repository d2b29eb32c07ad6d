import Synchronization

/// Requests for all tasks that match a filter.
extension TaskQueue {
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
    let own = generators.latestID(before: now)
    try await store.forEachPage(of: filter, after: id, tasksUpTo: own, body)
  }

  /// Asks something of a page of tasks, and returns the number of tasks that it was done to.
  private nonisolated func ask(
    _ directive: Directive,
    of page: some Sequence<TaskRecord>,
    matching filter: TaskFilter
  ) async throws -> Int {
    let now = now
    var records: [TaskRecord] = []
    // What was asked of these before comes first. The others don't wait for it.
    var others: [TaskRecord] = []
    for record in page where !directive.isMet(by: record, now: now) {
      if owner(of: record)?.hasRequest(for: record.id) == true {
        others.append(record)
      } else {
        records.append(record)
      }
    }
    var count = 0
    let results = try await store(records.map { change(directive, of: $0) }, for: records)
    for (record, result) in zip(records, results) {
      if case .duplicate = result { continue }
      if result.isDone { count += 1 } else { others.append(record) }
    }
    for record in others where try await askAgain(directive, of: record, matching: filter) {
      count += 1
    }
    return count
  }

  private nonisolated func hasRequest(for id: TaskID) -> Bool {
    machine.withLock { $0.hasRequest(for: id) }
  }

  /// Asks something of a task that has changed since it was listed, is being performed, or of which
  /// something else was asked before.
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
}
