public import SteadfastQueue
public import Testing
public import SystemFoundation

extension TaskQueue {
  /// Returns the tasks with payloads of this type that were enqueued and have not ended.
  ///
  /// ```swift
  /// let comments = try await queue.pendingTasks(of: PostComment.self)
  /// #expect(comments.map(\.payload.text) == ["so important"])
  /// #expect(comments[0].record.availableDate == clock.date + 60)
  /// ```
  /// The tasks come in the order in which they were enqueued. Running, paused and parked tasks are
  /// included, and so are tasks under the type's former names. Payloads are decoded from their
  /// stored bytes, so they are the payloads that a queue would find after a restart.
  /// - Throws: a ``QueueTestError`` for a payload that can't be decoded; a `TaskQueueError` for a
  ///   payload that its `PayloadSeal` can't open; the store's errors.
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

  /// Looks up the tasks with these names that have not ended; `nil` means all names.
  nonisolated func unfinishedTasks(named names: [String]? = nil) async throws -> [TaskRecord] {
    var filter = TaskFilter.unfinished
    filter.names = names.map { Set($0) }
    var records: [TaskRecord] = []
    while true {
      let page = try await tasks(matching: filter, after: records.last?.id, limit: 1000)
      records += page
      // A store may return fewer tasks than requested, so only an empty page marks the end.
      guard !page.isEmpty else { return records }
    }
  }
}

/// A task that has not ended, with its decoded payload.
public struct PendingTask<Payload: TaskPayload>: Sendable, Identifiable {
  /// The payload that the handler will get.
  public let payload: Payload
  /// The task's record in the store, such as its state, its dates and its priority.
  public let record: TaskRecord

  /// The task's ID.
  public var id: TaskID { record.id }
}

extension PendingTask: Equatable where Payload: Equatable {
  /// Returns whether both are the same task, with equal payloads.
  public static func == (left: PendingTask, right: PendingTask) -> Bool {
    left.id == right.id && left.payload == right.payload
  }
}

#if canImport(Testing)
extension TaskQueue {
  /// Expects that a task with this payload was enqueued and has not ended.
  ///
  /// If there is none, the method records an issue that lists the queue's tasks of this type.
  ///
  /// ```swift
  /// let later = PostComment(text: "later")
  /// try await queue.expectEnqueued(later, availableDate: clock.date + 60)
  /// ```
  /// - Parameters:
  ///   - payload: the payload that the handler will get.
  ///   - availableDate: the date from which the task may be performed, to the microsecond; `nil`
  ///     for any date.
  ///   - sourceLocation: the location at which an issue is recorded.
  /// - Returns: the first such task; `nil` if there is none.
  /// - Throws: the errors of ``pendingTasks(of:)``.
  @discardableResult
  public nonisolated func expectEnqueued<Payload: TaskPayload & Equatable>(
    _ payload: Payload,
    availableDate: Date? = nil,
    sourceLocation: SourceLocation = #_sourceLocation
  ) async throws -> PendingTask<Payload>? {
    let tasks = try await pendingTasks(of: Payload.self)
    let task = tasks.first { task in
      // A store may round dates to microseconds.
      task.payload == payload
        && availableDate.map { abs($0.timeIntervalSince(task.record.availableDate)) < 1e-6 } ?? true
    }
    if task == nil {
      let wanted = availableDate.map { "\(payload) at \($0)" } ?? "\(payload)"
      let found = tasks.map { "\($0.payload) at \($0.record.availableDate)" }
      Issue.record(
        """
        \(wanted) is not in the queue '\(name)'. Its \(Payload.taskName) tasks: \
        \(found.isEmpty ? "none" : found.joined(separator: ", "))
        """,
        sourceLocation: sourceLocation
      )
    }
    return task
  }

  /// Unavailable: `expectEnqueued(_:)` needs a payload, not a type.
  @available(*, unavailable, message: "give the payload, or look at pendingTasks(of:)")
  public nonisolated func expectEnqueued<Payload: TaskPayload>(_ type: Payload.Type) async throws {}
}
#endif

extension TaskPayload {
  /// Decodes a payload from its bytes, as a queue does for a handler after a restart.
  ///
  /// The method decodes the bytes even if the value is still in memory. So a test finds a `Codable`
  /// conformance that loses data.
  static func decoded(from stored: StoredPayload, of task: String) throws -> Self {
    guard !stored.format.isSealed else {
      throw QueueTestError(
        code: .unreadablePayload,
        description: """
          the payload of \(task) is sealed, and the queue's store has no seal to open it: give the \
          queue its store with sealingPayloads(with:)
          """
      )
    }
    do {
      return try JSONDecoder().decode(Self.self, from: Data(stored.bytes()))
    } catch let error as TaskQueueError where error.code == .unopenedPayload {
      throw error
    } catch {
      throw QueueTestError(
        code: .unreadablePayload,
        description: """
          the payload of \(task) can't be decoded as \(Self.self) from its stored bytes, and a \
          queue would park the task after a restart: \(error). Fix the type's Codable conformance
          """
      )
    }
  }

  /// Returns the payload that a handler would get after a restart.
  func decodedAfterRestart() throws -> Self {
    let bytes = Array(try JSONEncoder().encode(self))
    return try Self.decoded(from: StoredPayload(bytes, format: .json), of: "the task to perform")
  }
}
