/// A task that was enqueued: its identity, and a way to learn how it ends.
public struct EnqueuedTask: Sendable, Identifiable {
  private let cell: OutcomeCell
  private let queue: TaskQueue
  /// Whether the task was added by this call; `false` if it was there, with the same unique key.
  public let isNew: Bool

  init(cell: OutcomeCell, isNew: Bool, queue: TaskQueue) {
    self.cell = cell
    self.isNew = isNew
    self.queue = queue
  }

  /// The task's identity.
  public var id: TaskID { cell.id }

  /// Waits until the task has ended, and says how; at once if it has.
  ///
  /// - Throws: `CancellationError` when the waiting is cancelled: the task goes on. A
  ///   ``TaskQueueError`` if the queue was shut down before the task ended, or if the task was there
  ///   before, has ended, and was not kept. What the store throws.
  public func outcome() async throws -> TaskOutcome {
    if let outcome = cell.outcome { return outcome }
    if !isNew || queue.hasEnded, let outcome = try await storedOutcome() { return outcome }
    return try await cell.wait { queue.hasEnded ? TaskQueue.shutDownError : nil }
  }

  /// What the store knows; `nil` if the task has not ended.
  private func storedOutcome() async throws -> TaskOutcome? {
    guard
      let record = try await queue.store.tasks(
        matching: TaskFilter(ids: [id]),
        after: nil,
        limit: 1
      ).first
    else {
      // It may have ended, and gone, since the cell was last asked.
      if let outcome = cell.outcome { return outcome }
      throw TaskQueueError(
        .unknownTask,
        "the task \(id) is not there any more: it has ended, and its outcome was not kept"
      )
    }
    switch record.state {
    case .waiting, .running, .parked: return nil
    case .succeeded: return .succeeded
    case .abandoned: return .abandoned(reason: record.lastError ?? "")
    case .cancelled: return .cancelled
    }
  }
}
