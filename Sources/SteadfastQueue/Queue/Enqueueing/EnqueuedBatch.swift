/// Tasks that were enqueued as a batch, and the task that follows when all of them have ended.
public struct EnqueuedBatch: Sendable {
  /// The tasks of the batch, in the order of their payloads.
  public let tasks: [EnqueuedTask]
  /// The task that waits for all of them.
  public let follower: EnqueuedTask

  /// Returns how many tasks of the batch have ended, in this process or in another one.
  ///
  /// ``TaskEvent/batchProgressed(followedBy:_:)`` tells it at each end.
  ///
  /// - Returns: the progress, with tasks that handlers have added; `nil` if the task that follows
  ///   is not in the store any more.
  /// - Throws: what the store throws.
  public func progress() async throws -> BatchProgress? {
    try await follower.record().map { $0.dependencies.batch ?? BatchProgress() }
  }

  /// Cancels the task that follows, and those of ``tasks`` that have not ended.
  ///
  /// Tasks that handlers have added to the batch (``TaskContext/enqueueInBatch(_:options:)``) go
  /// on. To cancel those too, give all tasks of the batch a tag, and call
  /// ``TaskQueue/cancel(matching:)``.
  ///
  /// - Throws: what the store throws; some tasks may have been cancelled by then.
  public func cancel() async throws {
    try await follower.cancel()
    for task in tasks { try await task.cancel() }
  }
}
