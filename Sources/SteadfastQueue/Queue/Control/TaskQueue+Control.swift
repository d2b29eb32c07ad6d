public import SystemFoundation

/// Control of single tasks, and of all tasks that match a filter.
extension TaskQueue {
  /// Cancels a task.
  ///
  /// A task that waits is cancelled when the call returns. If the task is being performed, the call
  /// cancels the handler's Swift task and does not wait for the handler. If the handler then
  /// throws, the task is cancelled; if it returns all the same, the task has succeeded. The outcome
  /// of a cancelled task is ``TaskOutcome/cancelled``. A task that another process performs on a
  /// shared store is left alone.
  ///
  /// - Returns: whether the task is cancelled, or will be if its handler throws; `false` if it is
  ///   gone or has ended, another process performs it, or it is to be removed anyway.
  /// - Throws: what the store throws; `CancellationError` if it is cancelled while another call for
  ///   the task waits for a store that is gone.
  @discardableResult
  public nonisolated func cancel(_ id: TaskID) async throws -> Bool {
    try await core.opened.results.ask(.cancel, of: id)
  }

  /// Cancels the tasks that match a filter, as ``cancel(_:)`` does, and returns how many.
  ///
  /// The call changes a few hundred tasks at a time, while the queue goes on with its other work.
  /// Tasks that are enqueued after the call has begun are left alone, except for a few at most.
  ///
  /// In a ``TaskQueueGroup``, a filter with a ``TaskFilter/queue`` of `nil` reaches the tasks of
  /// all queues, also those that another queue of the group performs. The other calls with a filter
  /// do the same.
  ///
  /// - Throws: what the store throws; `CancellationError` if it is cancelled while another call for
  ///   these tasks waits for a store that is gone. Some tasks may have been cancelled by then.
  @discardableResult
  public nonisolated func cancel(matching filter: TaskFilter) async throws -> Int {
    try await core.opened.results.ask(.cancel, of: filter.narrowed(to: TaskState.unfinished))
  }

  /// Cancels all tasks that have not ended, and returns how many.
  ///
  /// Tasks that are enqueued after the call has begun stay, as for ``cancel(matching:)``.
  ///
  /// - Throws: as ``cancel(matching:)``.
  @discardableResult
  public nonisolated func cancelAll() async throws -> Int {
    try await cancel(matching: .unfinished)
  }

  /// Pauses a task until it is resumed or retried.
  ///
  /// If the task is being performed, the call cancels the handler's Swift task, and the task is
  /// paused if the handler then throws. That counts as no retry. The event ``TaskEvent/paused(_:)``
  /// is posted when the task is paused.
  ///
  /// - Returns: whether the task existed, had not ended, was neither paused nor about to be
  ///   cancelled, and is not performed by another process.
  /// - Throws: what the store throws; `CancellationError` if it is cancelled while another call for
  ///   the task waits for a store that is gone.
  @discardableResult
  public nonisolated func pause(_ id: TaskID) async throws -> Bool {
    try await core.opened.results.ask(.pause, of: id)
  }

  /// Resumes a paused task: it waits again, with the date and the retries that it had.
  ///
  /// - Returns: whether the task was paused.
  /// - Throws: what the store throws; `CancellationError` if it is cancelled while another call for
  ///   the task waits for a store that is gone.
  @discardableResult
  public nonisolated func resume(_ id: TaskID) async throws -> Bool {
    try await core.opened.results.resume(id)
  }

  /// Makes a task wait again as if it were new, available now, whatever state it is in.
  ///
  /// Use it to retry a dead letter, or to start a paused task over. An expiry date that has
  /// passed is dropped; a later one stays. If the task is being performed, the call cancels the
  /// handler's Swift task, and the task starts over if the handler then throws.
  ///
  /// What the task remembers stays, so a dead letter goes on with the step that failed. A task that
  /// has succeeded remembers nothing.
  ///
  /// - Parameters:
  ///   - id: the task.
  ///   - forgetting: whether the task forgets what it remembers, and begins from the beginning.
  /// - Returns: whether the task existed, and is not performed by another process.
  /// - Throws: a ``TaskQueueError`` with the code ``TaskQueueError/Code/duplicate`` if the task has
  ///   ended or expired, and another task has its unique key by now; the same errors as
  ///   ``cancel(_:)``.
  @discardableResult
  public nonisolated func retry(
    _ id: TaskID,
    forgetting: Bool = false
  ) async throws -> Bool {
    try await core.opened.results.ask(.restart(forgets: forgetting), of: id)
  }

  /// Retries the tasks that match a filter, as ``retry(_:forgetting:)`` does, and returns how many.
  ///
  /// `retry(matching: .deadLetters)` tries all dead letters once more. A task whose unique key
  /// another task has by now is left alone: it still matches the filter afterwards, and
  /// ``retry(_:forgetting:)`` says which task has its key.
  ///
  /// - Throws: the same errors as ``cancel(matching:)``; some tasks may wait again by then.
  @discardableResult
  public nonisolated func retry(
    matching filter: TaskFilter,
    forgetting: Bool = false
  ) async throws -> Int {
    try await core.opened.results.ask(.restart(forgets: forgetting), of: filter)
  }

  /// Sets the date from which a task may be performed.
  ///
  /// The task's retries and its last error stay as they are, and it goes behind the available tasks
  /// of its priority. A date that has passed counts as now.
  ///
  /// A paused or parked task stays so, with the new date. A task that is being performed is left
  /// alone. A task that has expired by the new date is abandoned on that date.
  ///
  /// - Returns: whether the task existed, had not ended, and was not being performed.
  /// - Throws: a ``TaskQueueError`` for a date that is not finite; the same errors as
  ///   ``cancel(_:)``.
  @discardableResult
  public nonisolated func reschedule(_ id: TaskID, to date: Date) async throws -> Bool {
    try await core.opened.results.reschedule(id, to: date)
  }

  /// Reschedules the tasks that match a filter, as ``reschedule(_:to:)`` does, and returns how many
  /// got another date.
  ///
  /// - Throws: as ``reschedule(_:to:)``; some tasks may have been rescheduled by then.
  @discardableResult
  public nonisolated func reschedule(
    matching filter: TaskFilter,
    to date: Date
  ) async throws -> Int {
    try await core.opened.results.reschedule(matching: filter, to: date)
  }

  /// Makes a task available now, without the rest of its delay.
  ///
  /// Otherwise it does what ``reschedule(_:to:)`` does. A task that is available already is left
  /// alone.
  ///
  /// - Returns: whether the task existed, had not ended, was not being performed, and was not
  ///   available already.
  /// - Throws: the same errors as ``cancel(_:)``.
  @discardableResult
  public nonisolated func performNow(_ id: TaskID) async throws -> Bool {
    try await core.opened.results.ask(.reschedule(to: nil), of: id)
  }

  /// Makes the tasks that match a filter available now, and returns how many were not.
  ///
  /// When the network is back, `performNow(matching: .retrying)` makes the tasks available at once
  /// that wait for a retry, or for the end of a snooze. Their number of retries stays. Tasks whose
  /// date was chosen are left alone: a filter without ``TaskFilter/isPostponed`` would make them
  /// available now, too.
  ///
  /// - Throws: the same errors as ``cancel(matching:)``; some tasks may be available by then.
  @discardableResult
  public nonisolated func performNow(matching filter: TaskFilter) async throws -> Int {
    try await core.opened.results.ask(
      .reschedule(to: nil),
      of: filter.narrowed(to: TaskState.unfinished)
    )
  }

  /// Removes a task without a trace, even a retained one.
  ///
  /// If the task is being performed, the call cancels the handler's Swift task, and the task is
  /// removed if the handler then throws.
  ///
  /// - Returns: whether the task existed, and is not performed by another process.
  /// - Throws: what the store throws; `CancellationError` if it is cancelled while another call for
  ///   the task waits for a store that is gone.
  @discardableResult
  public nonisolated func remove(_ id: TaskID) async throws -> Bool {
    try await core.opened.results.ask(.remove, of: id)
  }

  /// Removes the tasks that match a filter, as ``remove(_:)`` does, and returns how many.
  ///
  /// - Throws: the same errors as ``cancel(matching:)``; some tasks may have been removed by then.
  @discardableResult
  public nonisolated func remove(matching filter: TaskFilter) async throws -> Int {
    try await core.opened.results.ask(.remove, of: filter)
  }
}

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
  /// is retried, or when the queue next runs.
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
    return try await core.opened.results.update(id, update, as: Payload.self)
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
    return try await core.opened.results.update(id, update) { _ in }
  }
}
