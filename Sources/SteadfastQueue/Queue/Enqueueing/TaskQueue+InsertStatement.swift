extension TaskQueue {
  /// Returns a SQL statement that adds a task within a transaction of yours.
  ///
  /// ```swift
  /// let statement = try queue.insertStatement(for: SendReceipt(order: number))
  /// try connection.execute(statement.text, statement.parameters)
  /// ```
  /// The statement does what `enqueue` would do with the same arguments. Nothing is stored until
  /// you execute it and commit. Then a queue that runs on the database finds the task by itself, in
  /// this process or in another one. A payload that the store seals is sealed in the statement.
  ///
  /// This waits for nothing, so it can be called within a transaction. The queue must have been
  /// opened before (``open()``), which makes what the statement needs.
  ///
  /// - Parameters:
  ///   - payload: what the handler is given.
  ///   - uniqueKey: a key of which one task at a time is performed; by default the payload's own
  ///     (``TaskPayload/uniqueKey``). With ``UniquePolicy/reject``, the statement fails if there is
  ///     a duplicate; with the others it succeeds, and adds none.
  ///   - options: the options of the task. Dates and delays count from this call.
  /// - Returns: the statement, for one execution: it names the task's ID.
  /// - Throws: a ``TaskQueueError`` if an argument makes no sense, or the store has no such
  ///   statements; what the payload's encoding throws.
  public nonisolated func insertStatement<Payload: TaskPayload>(
    for payload: Payload,
    uniqueKey: String? = nil,
    options: TaskOptions = TaskOptions()
  ) throws -> InsertStatement {
    try checkCanOpen()
    var chosen = options
    chosen.fill(from: Payload.options)
    chosen.fill(from: configuration.taskDefaults)
    let draft = Draft(
      Payload.taskName,
      StoredPayload(payload),
      uniqueKey ?? payload.storedUniqueKey
    )
    let now = self.now
    let record = try record(of: draft, chosen, id: generators.nextID(at: now), now: now)
    let policy = chosen.onDuplicate ?? .keep
    guard let statement = try store.insertStatement(for: record, onDuplicate: policy) else {
      throw TaskQueueError(
        .invalidArgument,
        "the store (\(store)) has no SQL statement that adds a task to it, as a SQLite store or a "
          + "PostgreSQL store has; call enqueue"
      )
    }
    return statement
  }
}
