public import SteadfastQueue

extension TaskQueue {
  /// The tasks with payloads of this type that were enqueued and have not ended.
  ///
  /// ```swift
  /// let comments = try await queue.pendingTasks(of: PostComment.self)
  /// #expect(comments.map(\.payload.text) == ["so important"])
  /// #expect(comments[0].record.availableDate == clock.date + 60)
  /// ```
  /// In the order of enqueueing; those that run or were put aside are among them. Payloads are read
  /// from the bytes that a store would keep: what is seen here is what a restart finds. Tasks under
  /// the type's former names count.
  /// - Throws: a ``QueueTestError`` for a payload that can't be read back; a `TaskQueueError` for one
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

  /// The tasks that have not ended, page by page; of any name where none is given.
  nonisolated func unfinishedTasks(named names: [String]? = nil) async throws -> [TaskRecord] {
    var filter = TaskFilter.unfinished
    filter.names = names.map { Set($0) }
    var records: [TaskRecord] = []
    while true {
      let page = try await tasks(matching: filter, after: records.last?.id, limit: 1000)
      records += page
      guard page.count == 1000 else { return records }
    }
  }
}
