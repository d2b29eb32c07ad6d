extension TaskQueue {
  /// The number of tasks that have not ended: waiting, running, suspended, parked or paused.
  ///
  /// - Throws: what the store throws.
  public nonisolated var count: Int {
    get async throws { try await count(matching: .unfinished) }
  }

  /// Returns the number of tasks that match a filter, retained ones included.
  ///
  /// - Throws: what the store throws.
  public nonisolated func count(matching filter: TaskFilter) async throws -> Int {
    try await open()
    return try await store.count(matching: filter)
  }

  /// Returns whether a task exists and has not ended.
  ///
  /// - Throws: what the store throws.
  public nonisolated func contains(_ id: TaskID) async throws -> Bool {
    try await contains(TaskFilter(ids: [id], states: TaskState.unfinished))
  }

  /// Returns whether a task of this name exists and has not ended.
  ///
  /// - Throws: what the store throws.
  public nonisolated func contains(name: String) async throws -> Bool {
    try await contains(TaskFilter(names: [name], states: TaskState.unfinished))
  }

  private nonisolated func contains(_ filter: TaskFilter) async throws -> Bool {
    try await open()
    return try await store.contains(filter)
  }

  /// Returns the tasks that match a filter; by default those that have not ended.
  ///
  /// - Parameters:
  ///   - filter: which tasks to return.
  ///   - id: the last task of the previous page; `nil` for the first page.
  ///   - limit: the most tasks to return; by default all of them. A negative number means none.
  /// - Returns: the tasks that match the filter, in the order of enqueueing.
  /// - Throws: what the store throws.
  public nonisolated func tasks(
    matching filter: TaskFilter = .unfinished,
    after id: TaskID? = nil,
    limit: Int? = nil
  ) async throws -> [TaskRecord] {
    try await open()
    if let limit { return try await store.tasks(matching: filter, after: id, limit: max(0, limit)) }
    var found: [TaskRecord] = []
    try await forEachPage(of: filter, after: id) { found += $0 }
    return found
  }

  /// Returns a task that was enqueued before, perhaps in an earlier process.
  ///
  /// Use it to wait for the task's outcome, or to cancel the task.
  ///
  /// - Returns: the task; `nil` if it does not exist any more.
  /// - Throws: what the store throws.
  public nonisolated func task(_ id: TaskID) async throws -> EnqueuedTask? {
    try await open()
    let handle = observers.outcomes.handle(of: id)
    guard try await store.contains(TaskFilter(ids: [id])) else { return nil }
    return EnqueuedTask(handle: handle, isNew: false, queue: self)
  }
}
