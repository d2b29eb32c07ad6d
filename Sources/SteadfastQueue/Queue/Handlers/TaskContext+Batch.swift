extension TaskContext {
  /// Adds a task to the batch of this one: the batch's follower waits for it, too.
  ///
  /// The task is stored when the call returns, whatever then becomes of the attempt. The next
  /// attempt adds it again. The batch's follower has not begun by then, because it waits for this
  /// task.
  ///
  /// - Parameters:
  ///   - payload: what the handler is given. It must have no unique key.
  ///   - options: the options of the task, without ``TaskOptions/after`` and
  ///     ``TaskOptions/inOrder``: the task could wait for the batch's follower, which waits for it.
  /// - Returns: the task.
  /// - Throws: a ``TaskQueueError`` if this task is of no batch, or if an option makes no sense;
  ///   what the store throws.
  @discardableResult
  public func enqueueInBatch<Payload: TaskPayload>(
    _ payload: Payload,
    options: TaskOptions = TaskOptions()
  ) async throws -> EnqueuedTask {
    try await enqueueInBatch(contentsOf: CollectionOfOne(payload), options: options)[0]
  }

  /// Adds tasks to the batch of this one, all of them or none.
  ///
  /// It does for each of them what ``enqueueInBatch(_:options:)`` does.
  ///
  /// - Parameters:
  ///   - payloads: what the handlers are given, one payload for each task.
  ///   - options: the options of all of the tasks.
  /// - Returns: the tasks, in the order of the payloads.
  /// - Throws: as ``enqueueInBatch(_:options:)``.
  @discardableResult
  public func enqueueInBatch<Payload: TaskPayload>(
    contentsOf payloads: some Sequence<Payload>,
    options: TaskOptions = TaskOptions()
  ) async throws -> [EnqueuedTask] {
    guard let follower = dependencies.follower else {
      throw TaskQueueError(
        .invalidArgument,
        "the task \(id) of the name '\(name)' is of no batch, so nothing can be added to it; enqueue "
          + "the first tasks of a batch with enqueue(contentsOf:then:)"
      )
    }
    return try await queue.enqueue(
      contentsOf: Array(payloads),
      options: options,
      inBatchBefore: follower
    )
  }
}
