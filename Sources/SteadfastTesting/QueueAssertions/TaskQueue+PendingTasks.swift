public import SteadfastQueue

extension TaskQueue {
  /// Returns the tasks with payloads of this type that were enqueued and have not ended.
  ///
  /// ```swift
  /// let comments = try await queue.pendingTasks(of: PostComment.self)
  /// #expect(comments.map(\.payload.text) == ["so important"])
  /// #expect(comments[0].record.availableDate == clock.date + 60)
  /// ```
  /// The tasks come in the order in which they were enqueued. Running, paused and parked tasks are
  /// included, and so are tasks under the type's former names. Payloads are decoded from the bytes
  /// that a store would store, so they are what a queue finds after a restart.
  /// - Throws: a ``QueueTestError`` for a payload that can't be decoded; a `TaskQueueError` for one
  ///   that its `PayloadSeal` can't open; what the store throws.
  public nonisolated func pendingTasks<Payload: TaskPayload>(
    of type: Payload.Type
  ) async throws -> [PendingTask<Payload>] {
    try await unfinishedTasks(named: [type.taskName] + type.formerTaskNames).map { record in
      PendingTask(
        payload: try type.decoded(from: record.payload, of: "the task \(record.id)"),
        record: record
      )
    }
  }

  /// Looks up the tasks that have not ended, page by page; `nil` stands for all names.
  nonisolated func unfinishedTasks(named names: [String]? = nil) async throws -> [TaskRecord] {
    var filter = TaskFilter.unfinished
    filter.names = names.map { Set($0) }
    var records: [TaskRecord] = []
    while true {
      let page = try await tasks(matching: filter, after: records.last?.id, limit: 1000)
      records += page
      // A store may return fewer than it was asked for, so only an empty page is the last one.
      guard !page.isEmpty else { return records }
    }
  }
}
