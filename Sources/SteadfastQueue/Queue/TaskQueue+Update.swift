#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
public import Foundation
#endif

/// Changes of enqueued tasks.
extension TaskQueue {
  /// Replaces the payload of a task that is not being performed, and changes what else is given.
  ///
  /// ```swift
  /// let corrected = PostComment(text: "corrected")
  /// try await queue.update(task.id, with: corrected, priority: .high)
  /// ```
  ///
  /// The task may wait for its first attempt or for a retry, be paused, or be parked. What is not
  /// given stays as it is. So do the task's date, its retries, its failures and its unique key. A
  /// task that is parked because its payload can't be decoded is tried with the new payload when it
  /// is restarted, or when the queue next runs.
  ///
  /// A task that gets another priority takes its place among the tasks of that priority by its
  /// available date, behind those of the same date. With the same priority, it keeps its place. For
  /// another date, see ``reschedule(_:to:)``.
  ///
  /// - Parameters:
  ///   - id: the task.
  ///   - payload: the new payload; of the type that the task was enqueued with, or of a type that
  ///     has the task's name among its former names.
  ///   - priority: its rank among the available tasks.
  ///   - maxRetries: how often it may be retried; the retries that it has had already count.
  ///   - usesBackoff: whether a retry waits for the queue's backoff.
  ///   - timeLimit: how long one attempt may take.
  ///   - expiryDate: the date from which no attempt begins any more.
  ///   - tags: its labels, in place of those that it has; an empty set removes them.
  /// - Returns: whether the task existed, had not ended, and had not lost its unique key to a later
  ///   task because it had expired.
  /// - Throws: a ``TaskQueueError`` with the code ``TaskQueueError/Code/isRunning`` if the task is
  ///   being performed, or ``TaskQueueError/Code/invalidArgument`` for a payload of another type or
  ///   an argument that makes no sense; what the store throws; `CancellationError` if it is
  ///   cancelled while another call for the task waits for a store that is gone. After an error,
  ///   nothing is changed.
  @discardableResult
  public nonisolated func update<Payload: TaskPayload>(
    _ id: TaskID,
    with payload: Payload,
    priority: Priority? = nil,
    maxRetries: RetryLimit? = nil,
    usesBackoff: Bool? = nil,
    timeLimit: Duration? = nil,
    expiryDate: Date? = nil,
    tags: Set<String>? = nil
  ) async throws -> Bool {
    let update = TaskUpdate(
      payload: StoredPayload(payload),
      priority: priority,
      maxRetries: maxRetries,
      usesBackoff: usesBackoff,
      timeLimit: timeLimit,
      expiryDate: expiryDate,
      tags: tags
    )
    let names = Self.names(of: Payload.self)
    return try await self.update(id, update) { (record) throws(TaskQueueError) in
      guard !names.contains(record.name) else { return }
      throw TaskQueueError(
        .invalidArgument,
        "the task \(id) is a '\(record.name)', and the payload is of '\(Payload.taskName)'; give one "
          + "of the task's type"
      )
    }
  }

  /// Changes what is given about a task that is not being performed, and leaves its payload.
  ///
  /// - Parameters:
  ///   - id: the task.
  ///   - priority: its rank among the available tasks.
  ///   - maxRetries: how often it may be retried; the retries that it has had already count.
  ///   - usesBackoff: whether a retry waits for the queue's backoff.
  ///   - timeLimit: how long one attempt may take.
  ///   - expiryDate: the date from which no attempt begins any more.
  ///   - tags: its labels, in place of those that it has; an empty set removes them.
  /// - Returns: as ``update(_:with:priority:maxRetries:usesBackoff:timeLimit:expiryDate:tags:)``.
  /// - Throws: as ``update(_:with:priority:maxRetries:usesBackoff:timeLimit:expiryDate:tags:)``.
  @discardableResult
  public nonisolated func update(
    _ id: TaskID,
    priority: Priority? = nil,
    maxRetries: RetryLimit? = nil,
    usesBackoff: Bool? = nil,
    timeLimit: Duration? = nil,
    expiryDate: Date? = nil,
    tags: Set<String>? = nil
  ) async throws -> Bool {
    let update = TaskUpdate(
      priority: priority,
      maxRetries: maxRetries,
      usesBackoff: usesBackoff,
      timeLimit: timeLimit,
      expiryDate: expiryDate,
      tags: tags
    )
    return try await self.update(id, update) { _ in }
  }

  private nonisolated func update(
    _ id: TaskID,
    _ given: TaskUpdate,
    check: (TaskRecord) throws(TaskQueueError) -> Void
  ) async throws -> Bool {
    try given.checkForm()
    if let tags = given.tags { try TaskQueueError.check(tags, "tags") }
    var update = given
    if RealWork.encodesPayloads { update.payload = try given.payload?.withoutValue() }
    update.expiryDate = given.expiryDate?.storable
    if configuration.prohibitsBackoff { update.usesBackoff = given.usesBackoff.map { _ in false } }
    try await open()
    var hasWaited = false
    while let record = try await record(of: id), !record.state.isFinished, !record.isDisplaced {
      try check(record)
      try update.check(against: record)
      if record.state == .running {
        guard !hasWaited else { throw Self.running(id) }
        // Its attempt may have ended, and its end may be on its way into the store.
        hasWaited = true
        try await observers.changes.wait(until: .endIsTold, of: id)
      } else if try await store([.update(id, update)], for: [record])[0].isDone {
        return true
      }
      try Task.checkCancellation()
    }
    return false
  }

  private static func running(_ id: TaskID) -> TaskQueueError {
    TaskQueueError(
      .isRunning,
      "the task \(id) is being performed; change it when it waits again, or pause it, and change it "
        + "when its handler has ended"
    )
  }
}

extension TaskUpdate {
  /// Throws if the task could never be performed afterwards.
  fileprivate func check(against record: TaskRecord) throws(TaskQueueError) {
    guard let expiryDate, record.availableDate >= expiryDate else { return }
    throw TaskQueueError(
      .invalidArgument,
      "expiryDate (\(expiryDate)) is not after the task's availableDate (\(record.availableDate)): it "
        + "could never be performed"
    )
  }
}
