extension TaskQueue {
  /// How many tasks have not ended: those that wait, are performed, or are put aside.
  ///
  /// - Throws: what the store throws.
  public nonisolated var count: Int {
    get async throws { try await count(matching: .unfinished) }
  }

  /// How many tasks a filter lets through; kept ones that have ended are among them.
  ///
  /// - Throws: what the store throws.
  public nonisolated func count(matching filter: TaskFilter) async throws -> Int {
    try await open()
    return try await store.count(matching: filter)
  }

  /// Whether a task is there that has not ended.
  ///
  /// - Throws: what the store throws.
  public nonisolated func contains(_ id: TaskID) async throws -> Bool {
    try await count(matching: TaskFilter(ids: [id], states: TaskFilter.unfinished.states)) > 0
  }

  /// Whether a task of this name is there that has not ended.
  ///
  /// - Throws: what the store throws.
  public nonisolated func contains(name: String) async throws -> Bool {
    try await count(matching: TaskFilter(names: [name], states: TaskFilter.unfinished.states)) > 0
  }

  /// Looks tasks up; by default those that have not ended.
  ///
  /// - Parameters:
  ///   - filter: which tasks.
  ///   - id: the last task of the page before; `nil` for the first page.
  ///   - limit: how many at most; a negative number means none.
  /// - Returns: the tasks that the filter lets through, in the order of enqueueing.
  /// - Throws: what the store throws.
  public nonisolated func tasks(
    matching filter: TaskFilter = .unfinished,
    after id: TaskID? = nil,
    limit: Int = 1000
  ) async throws -> [TaskRecord] {
    try await open()
    return try await store.tasks(matching: filter, after: id, limit: max(0, limit))
  }

  /// A task that was enqueued before, in an earlier process perhaps: to learn how it ends, or to
  /// cancel it.
  ///
  /// - Returns: the task; `nil` if it is not there any more.
  /// - Throws: what the store throws.
  public nonisolated func task(_ id: TaskID) async throws -> EnqueuedTask? {
    try await open()
    let cell = outcomes.cell(of: id)
    guard try await store.count(matching: TaskFilter(ids: [id])) > 0 else { return nil }
    return EnqueuedTask(cell: cell, isNew: false, queue: self)
  }
}
