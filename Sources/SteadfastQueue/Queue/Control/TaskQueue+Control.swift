import Synchronization
public import SystemFoundation

/// Controls single tasks, or all tasks that match a filter.
extension TaskQueue {
  /// Cancels a task.
  ///
  /// A waiting task is cancelled when the call returns. If the task is being performed, the call
  /// cancels the handler's Swift task and does not wait for the handler. If the handler then
  /// throws, the task is cancelled. If the handler returns nevertheless, the task has succeeded.
  /// The outcome of a cancelled task is ``TaskOutcome/cancelled``. If another process performs the
  /// task on a shared store, that process cancels the handler at its next hint or poll, and at the
  /// latest when it extends its claim.
  ///
  /// - Returns: `true` if the task is cancelled, or will be if its handler throws; `false` if the
  ///   task does not exist, has ended, or is about to be removed.
  /// - Throws: what the store throws; `CancellationError` if the call is cancelled while another
  ///   call for the task waits for an unavailable store.
  @discardableResult
  public nonisolated func cancel(_ id: TaskID) async throws -> Bool {
    try await core.endTasks { try await $0.carryOut(.cancel, for: id) }
  }

  /// Cancels the tasks that match a filter, as ``cancel(_:)`` does, and returns their number.
  ///
  /// The call changes a few hundred tasks at a time, while the queue continues its other work. It
  /// skips almost all tasks that are enqueued after the call has started.
  ///
  /// In a ``TaskQueueGroup``, a filter whose ``TaskFilter/queue`` is `nil` matches the tasks of all
  /// queues, including tasks that another queue of the group performs. This is true of each method
  /// with a filter.
  ///
  /// - Throws: what the store throws; `CancellationError` if the call is cancelled while another
  ///   call for these tasks waits for an unavailable store. Some tasks may have been cancelled by
  ///   then.
  @discardableResult
  public nonisolated func cancel(matching filter: TaskFilter) async throws -> Int {
    try await core.endTasks {
      try await $0.carryOut(.cancel, forAll: filter.narrowed(to: TaskState.unfinished))
    }
  }

  /// Cancels all tasks that have not ended, and returns their number.
  ///
  /// Like ``cancel(matching:)``, the call skips tasks that are enqueued after it has started.
  ///
  /// - Throws: the same errors as ``cancel(matching:)``.
  @discardableResult
  public nonisolated func cancelAll() async throws -> Int {
    try await cancel(matching: .unfinished)
  }

  /// Pauses a task until it is resumed or retried.
  ///
  /// If the task is being performed, the call cancels the handler's Swift task, and the task is
  /// paused if the handler then throws. That attempt does not count as a retry. The event
  /// ``TaskEvent/paused(_:)`` is posted when the task is paused.
  ///
  /// - Returns: `true` if the task is paused, or will be if its handler throws; `false` if the task
  ///   does not exist, has ended, was already paused, or is about to be cancelled or removed.
  /// - Throws: what the store throws; `CancellationError` if the call is cancelled while another
  ///   call for the task waits for an unavailable store.
  @discardableResult
  public nonisolated func pause(_ id: TaskID) async throws -> Bool {
    try await core.opened.results.carryOut(.pause, for: id)
  }

  /// Makes a paused task wait again, with the same date and the same number of retries.
  ///
  /// - Returns: whether the task was paused.
  /// - Throws: what the store throws; `CancellationError` if the call is cancelled while another
  ///   call for the task waits for an unavailable store.
  @discardableResult
  public nonisolated func resume(_ id: TaskID) async throws -> Bool {
    try await core.opened.results.resume(id)
  }

  /// Makes a task available now, as if it were new, whatever its state.
  ///
  /// Use it to retry a dead letter, or to start a paused task over. An expiry date that has passed
  /// is removed. If the task is being performed, the call cancels the handler's Swift task, and the
  /// task starts over if the handler then throws.
  ///
  /// The task keeps its memory, which includes the values that its steps have stored. So a dead
  /// letter continues with the step that failed. A task that has succeeded has no memory.
  ///
  /// - Parameters:
  ///   - id: the task.
  ///   - forgetting: whether the task's memory is deleted, so that it starts from the beginning.
  /// - Returns: whether the task existed.
  /// - Throws: a ``TaskQueueError`` with the code ``TaskQueueError/Code/duplicate`` if the task has
  ///   ended or expired, and another task now has its unique key; the same errors as
  ///   ``cancel(_:)``.
  @discardableResult
  public nonisolated func retry(
    _ id: TaskID,
    forgetting: Bool = false
  ) async throws -> Bool {
    try await core.opened.results.carryOut(.restart(forgets: forgetting), for: id)
  }

  /// Retries the tasks that match a filter, as ``retry(_:forgetting:)`` does, and returns their
  /// number.
  ///
  /// `retry(matching: .deadLetters)` retries all dead letters. The call skips a task if another
  /// task now has its unique key. To learn which one, call ``retry(_:forgetting:)`` for the skipped
  /// task: the error names the other task.
  ///
  /// - Throws: the same errors as ``cancel(matching:)``; some tasks may have been retried by then.
  @discardableResult
  public nonisolated func retry(
    matching filter: TaskFilter,
    forgetting: Bool = false
  ) async throws -> Int {
    try await core.opened.results.carryOut(.restart(forgets: forgetting), forAll: filter)
  }

  /// Sets the earliest date at which a task may be performed.
  ///
  /// The task keeps its number of retries and its last error, and goes behind the available tasks
  /// of its priority. A date that has passed counts as now.
  ///
  /// A paused or parked task stays paused or parked, with the new date. If the task is being
  /// performed, the call does nothing. If the new date is not before the task's expiry date, the
  /// task is abandoned at the new date.
  ///
  /// - Returns: whether the task existed, had not ended, and was not being performed.
  /// - Throws: a ``TaskQueueError`` for a date that is not finite; the same errors as
  ///   ``cancel(_:)``.
  @discardableResult
  public nonisolated func reschedule(_ id: TaskID, to date: Date) async throws -> Bool {
    try await core.opened.results.reschedule(id, to: date)
  }

  /// Reschedules the tasks that match a filter, as ``reschedule(_:to:)`` does, and returns their
  /// number.
  ///
  /// - Throws: the same errors as ``reschedule(_:to:)``; some tasks may have been rescheduled by
  ///   then.
  @discardableResult
  public nonisolated func reschedule(
    matching filter: TaskFilter,
    to date: Date
  ) async throws -> Int {
    try await core.opened.results.reschedule(matching: filter, to: date)
  }

  /// Makes a task available now instead of at its date.
  ///
  /// The call does what ``reschedule(_:to:)`` does with the current date, but does nothing if the
  /// task is already available.
  ///
  /// - Returns: whether the task existed, had not ended, was not being performed, and was not yet
  ///   available.
  /// - Throws: the same errors as ``cancel(_:)``.
  @discardableResult
  public nonisolated func performNow(_ id: TaskID) async throws -> Bool {
    try await core.opened.results.carryOut(.reschedule(to: nil), for: id)
  }

  /// Makes the tasks that match a filter available now, and returns the number of those that were
  /// not available before.
  ///
  /// For example, when the network is available again, call `performNow(matching: .retrying)`. That
  /// filter matches tasks that wait for a retry, or for the end of a snooze, and the tasks keep
  /// their number of retries. It does not match tasks that wait for the date with which they were
  /// enqueued. A filter without ``TaskFilter/isPostponed`` also matches those.
  ///
  /// - Throws: the same errors as ``cancel(matching:)``; some tasks may be available by then.
  @discardableResult
  public nonisolated func performNow(matching filter: TaskFilter) async throws -> Int {
    try await core.opened.results.carryOut(
      .reschedule(to: nil),
      forAll: filter.narrowed(to: TaskState.unfinished)
    )
  }

  /// Removes a task from the store, even if it has ended and is retained.
  ///
  /// If the task is being performed, the call cancels the handler's Swift task, and the task is
  /// removed if the handler then throws.
  ///
  /// - Returns: whether the task existed.
  /// - Throws: what the store throws; `CancellationError` if the call is cancelled while another
  ///   call for the task waits for an unavailable store.
  @discardableResult
  public nonisolated func remove(_ id: TaskID) async throws -> Bool {
    try await core.endTasks { try await $0.carryOut(.remove, for: id) }
  }

  /// Removes the tasks that match a filter, as ``remove(_:)`` does, and returns their number.
  ///
  /// - Throws: the same errors as ``cancel(matching:)``; some tasks may have been removed by then.
  @discardableResult
  public nonisolated func remove(matching filter: TaskFilter) async throws -> Int {
    try await core.endTasks { try await $0.carryOut(.remove, forAll: filter) }
  }
}

extension QueueCore {
  /// Opens the store, and carries out a command that may end occurrences before they begin; then
  /// the schedules of the queues in this process advance.
  func endTasks<Result>(
    _ carryOut: (Results) async throws -> Result
  ) async throws -> Result {
    let results = try await opened.results
    let result = try await carryOut(results)
    for queue in [self] + (services.storage.group?.otherQueues ?? [])
    where queue.upkeep.state.withLock(\.schedulesAreDue) {
      // If the store fails, the next claim or the next run does it.
      try? await queue.schedules.restoreSchedules()
    }
    return result
  }
}

/// Updates enqueued tasks.
extension TaskQueue {
  /// Replaces the payload of a task that is not being performed, and changes the given properties.
  ///
  /// ```swift
  /// let corrected = PostComment(text: "corrected")
  /// try await queue.update(task.id, with: corrected, priority: .high)
  /// ```
  ///
  /// The task may wait for its first attempt or for a retry, or may be paused or parked. A property
  /// that is not given stays unchanged, and so do the task's date, its number of retries, its
  /// failures and its unique key. A task that is parked because its payload can't be decoded is
  /// attempted with the new payload when it is retried, or when the queue next runs.
  ///
  /// If the priority changes, the task is ordered among the tasks with the new priority by its
  /// available date, behind tasks with the same date. Otherwise, the task keeps its position. To
  /// change the date, call ``reschedule(_:to:)``.
  ///
  /// - Parameters:
  ///   - id: the task.
  ///   - payload: the new payload. Its type must have the task's name, as its current name or as
  ///     one of its former names.
  ///   - priority: its rank among the available tasks.
  ///   - maxRetries: the maximum number of retries; the retries that it has already had count.
  ///   - usesBackoff: whether a retry waits for the queue's backoff.
  ///   - timeLimit: the maximum duration of an attempt.
  ///   - expiryDate: the date from which no attempt starts.
  ///   - tags: its new labels, which replace the existing ones; an empty set removes them.
  ///   - metadata: its new metadata, which replaces the existing one; an empty dictionary removes
  ///     it.
  /// - Returns: `true` if the task was updated; `false` if it does not exist, has ended, or has
  ///   expired while a later task has its unique key.
  /// - Throws: a ``TaskQueueError`` with the code ``TaskQueueError/Code/isRunning`` if the task is
  ///   being performed, or ``TaskQueueError/Code/invalidArgument`` for a payload of another type or
  ///   an invalid argument; what the store throws; `CancellationError` if the call is cancelled
  ///   while another call for the task waits for an unavailable store. After an error, nothing is
  ///   changed.
  @discardableResult
  public nonisolated func update<Payload: TaskPayload>(
    _ id: TaskID,
    with payload: Payload,
    priority: Priority? = nil,
    maxRetries: RetryLimit? = nil,
    usesBackoff: Bool? = nil,
    timeLimit: Duration? = nil,
    expiryDate: Date? = nil,
    tags: Set<String>? = nil,
    metadata: [String: String]? = nil
  ) async throws -> Bool {
    let update = TaskUpdate(
      payload: StoredPayload(payload),
      priority: priority,
      maxRetries: maxRetries,
      usesBackoff: usesBackoff,
      timeLimit: timeLimit,
      expiryDate: expiryDate,
      tags: tags,
      metadata: metadata
    )
    return try await core.opened.results.update(id, update, as: Payload.self)
  }

  /// Changes the given properties of a task that is not being performed, but not its payload.
  ///
  /// - Parameters:
  ///   - id: the task.
  ///   - priority: its rank among the available tasks.
  ///   - maxRetries: the maximum number of retries; the retries that it has already had count.
  ///   - usesBackoff: whether a retry waits for the queue's backoff.
  ///   - timeLimit: the maximum duration of an attempt.
  ///   - expiryDate: the date from which no attempt starts.
  ///   - tags: its new labels, which replace the existing ones; an empty set removes them.
  ///   - metadata: its new metadata, which replaces the existing one; an empty dictionary removes
  ///     it.
  /// - Returns: the same as
  ///   ``update(_:with:priority:maxRetries:usesBackoff:timeLimit:expiryDate:tags:metadata:)``.
  /// - Throws: the same errors as
  ///   ``update(_:with:priority:maxRetries:usesBackoff:timeLimit:expiryDate:tags:metadata:)``.
  @discardableResult
  public nonisolated func update(
    _ id: TaskID,
    priority: Priority? = nil,
    maxRetries: RetryLimit? = nil,
    usesBackoff: Bool? = nil,
    timeLimit: Duration? = nil,
    expiryDate: Date? = nil,
    tags: Set<String>? = nil,
    metadata: [String: String]? = nil
  ) async throws -> Bool {
    let update = TaskUpdate(
      priority: priority,
      maxRetries: maxRetries,
      usesBackoff: usesBackoff,
      timeLimit: timeLimit,
      expiryDate: expiryDate,
      tags: tags,
      metadata: metadata
    )
    return try await core.opened.results.update(id, update) { _ in }
  }
}
