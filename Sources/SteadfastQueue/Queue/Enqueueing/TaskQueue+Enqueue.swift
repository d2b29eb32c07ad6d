public import SystemFoundation

extension TaskQueue {
  /// Adds a task.
  ///
  /// The task is stored when the call returns. A handler that adds a task to its own queue calls
  /// the method of its ``TaskContext``, so it needs no reference to the queue.
  ///
  /// An argument that is left out is taken from `options`, then from the payload's type
  /// (``TaskPayload/options``), then from the queue's
  /// ``TaskQueueConfiguration/taskDefaults``; see ``TaskOptions``.
  ///
  /// - Parameters:
  ///   - payload: what the handler is given.
  ///   - availableDate: the date from which the task may be performed; by default now.
  ///   - delay: how long from now until the task may be performed, in place of a date.
  ///   - maxRetries: how often it is tried again when it fails; by default 10 times, so 11
  ///     attempts.
  ///   - usesBackoff: whether a retry waits for the queue's backoff, or is due at once; by default
  ///     it waits.
  ///   - priority: its rank among the available tasks; by default ``Priority/normal``.
  ///   - uniqueKey: a key of which one task at a time is performed; by default the payload's own
  ///     (``TaskPayload/uniqueKey``).
  ///   - policy: what to do if a task with the key waits or is performed already; by default
  ///     ``UniquePolicy/keep``.
  ///   - options: everything else: a time limit, an expiry date, tags.
  /// - Returns: the task, or the one with the same key that stands for it (``UniquePolicy``).
  /// - Throws: a ``TaskQueueError`` if an argument makes no sense or a duplicate is rejected; what
  ///   the payload's encoding throws; what the store throws; `CancellationError` if it is to
  ///   replace a task, and is cancelled while another call for that one waits for a store that is
  ///   gone. After an error the task was not added, unless the error says that the outcome is
  ///   unknown.
  @discardableResult
  public nonisolated func enqueue<Payload: TaskPayload>(
    _ payload: Payload,
    availableDate: Date? = nil,
    delay: Duration? = nil,
    maxRetries: RetryLimit? = nil,
    usesBackoff: Bool? = nil,
    priority: Priority? = nil,
    uniqueKey: String? = nil,
    onDuplicate policy: UniquePolicy? = nil,
    options: TaskOptions = TaskOptions()
  ) async throws -> EnqueuedTask {
    let chosen = TaskOptions(
      availableDate: availableDate,
      delay: delay,
      maxRetries: maxRetries,
      usesBackoff: usesBackoff,
      priority: priority,
      onDuplicate: policy
    )
    return try await core.enqueue(TaskDraft(payload, uniqueKey, chosen, options))
  }

  /// Adds several tasks of one type in one step: all of them or, if it throws, none.
  ///
  /// Each task is added as by the call for a single payload.
  ///
  /// - Parameters:
  ///   - payloads: what the handlers are given, one payload for each task.
  ///   - options: the options of all of the tasks.
  ///   - uniqueKey: returns the key of a task, of which one at a time is performed. If it returns
  ///     `nil`, and by default, the key is the payload's own (``TaskPayload/uniqueKey``).
  /// - Returns: the tasks, in the order of the payloads.
  /// - Throws: as for a single task. After an error that says that the outcome is unknown, all of
  ///   the tasks have been added, or none.
  @discardableResult
  public nonisolated func enqueue<Payload: TaskPayload>(
    contentsOf payloads: some Sequence<Payload>,
    options: TaskOptions = TaskOptions(),
    uniqueKey: (Payload) -> String? = { _ in nil }
  ) async throws -> [EnqueuedTask] {
    try await core.enqueue(payloads.map { TaskDraft($0, uniqueKey($0), options) })
  }

  /// Adds a task that has a name and any JSON, and no payload type.
  ///
  /// Otherwise it does what the call with a payload type does. Register its handler with
  /// ``register(name:maxConcurrentTasks:perform:)`` or ``registerFallback(perform:)``. A handler
  /// that is registered for a payload type of this name performs the task, too.
  ///
  /// - Parameters:
  ///   - name: the name under which its handler is found.
  ///   - payload: what the handler is given; by default `null`.
  ///   - uniqueKey: a key of which one task at a time is performed; by default none.
  ///   - options: the options of the task.
  /// - Returns: the task, or the one with the same key that stands for it (``UniquePolicy``).
  /// - Throws: as for a task with a payload type.
  @discardableResult
  public nonisolated func enqueue(
    name: String,
    _ payload: JSONValue = .null,
    uniqueKey: String? = nil,
    options: TaskOptions = TaskOptions()
  ) async throws -> EnqueuedTask {
    try await core.enqueue(TaskDraft(name, try StoredPayload(payload), uniqueKey, options))
  }
}

extension TaskQueue {
  /// Adds tasks that may wait for each other in one step: all of them or, if it throws, none.
  ///
  /// ```swift
  /// try await queue.enqueue { tasks in
  ///   let album = try tasks.add(CreateAlbum(title: "Summer"))
  ///   let cover = try tasks.add(UploadCover())
  ///   try tasks.add(Share(), options: TaskOptions(dependencies: [album, cover]))
  /// }
  /// ```
  ///
  /// If another task has the unique key of one of them, none is added.
  ///
  /// - Parameter body: a closure that adds the tasks. It may be called more than once.
  /// - Returns: the tasks, in the order in which they were added.
  /// - Throws: what `body` throws; a ``TaskQueueError`` with the code
  ///   ``TaskQueueError/Code/unmetDependency`` if one of them names a task that is not in the
  ///   store, or has ended without success, with ``TaskQueueError/Code/duplicate`` if another task
  ///   has a unique key; what the store throws. After an error that says that the outcome is
  ///   unknown, all of the tasks have been added, or none.
  @discardableResult
  public nonisolated func enqueue(
    together body: (inout TaskDrafts) throws -> Void
  ) async throws -> [EnqueuedTask] {
    try await core.enqueue(together: body)
  }

  /// Adds a batch of tasks, and one that follows when all of them have ended, in one step.
  ///
  /// ```swift
  /// let notice = Notify(album: album)
  /// let batch = try await queue.enqueue(contentsOf: photos, then: notice)
  /// ```
  ///
  /// With the follower's ``TaskOptions/dependencyRule``, it follows if all have succeeded, which is
  /// the default, or however they have ended. In the first case it is cancelled as soon as one of
  /// them ends without success; the others go on. If there are no payloads, it is available at
  /// once.
  ///
  /// A handler of a task of the batch can add further ones
  /// (``TaskContext/enqueueInBatch(_:options:)``). If another task has the unique key of one of
  /// them, none is added.
  ///
  /// - Parameters:
  ///   - payloads: what the handlers of the batch are given, one payload for each task.
  ///   - options: the options of the tasks of the batch.
  ///   - follower: the payload of the task that follows. It must have no unique key.
  ///   - followerOptions: the options of the task that follows.
  /// - Returns: the tasks.
  /// - Throws: as ``enqueue(together:)``.
  @discardableResult
  public nonisolated func enqueue<Payload: TaskPayload, Follower: TaskPayload>(
    contentsOf payloads: some Sequence<Payload>,
    options: TaskOptions = TaskOptions(),
    then follower: Follower,
    followerOptions: TaskOptions = TaskOptions()
  ) async throws -> EnqueuedBatch {
    try await core.enqueue(contentsOf: payloads, options, then: follower, followerOptions)
  }
}

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
    try core.insertStatement(TaskDraft(payload, uniqueKey, options))
  }
}

// What one may guess, and what has another form. Without these, a call is an error of the
// compiler's all the same. With them, the error says what to write.

extension TaskQueue {
  /// Not here: several payloads have a label.
  @available(*, unavailable, message: "give several payloads as enqueue(contentsOf:)")
  @discardableResult
  public nonisolated func enqueue<Payload: TaskPayload>(
    _ payloads: [Payload]
  ) async throws -> [EnqueuedTask] {
    try await enqueue(contentsOf: payloads)
  }

  /// Not here: a task is named by its ID.
  @available(*, unavailable, message: "give the task's id")
  @discardableResult
  public nonisolated func cancel(_ task: EnqueuedTask) async throws -> Bool {
    try await cancel(task.id)
  }

  /// Not here: a task is named by its ID.
  @available(*, unavailable, message: "give the task's id")
  @discardableResult
  public nonisolated func pause(_ task: EnqueuedTask) async throws -> Bool {
    try await pause(task.id)
  }

  /// Not here: a task is named by its ID.
  @available(*, unavailable, message: "give the task's id")
  @discardableResult
  public nonisolated func resume(_ task: EnqueuedTask) async throws -> Bool {
    try await resume(task.id)
  }

  /// Not here: a task is named by its ID.
  @available(*, unavailable, message: "give the task's id")
  @discardableResult
  public nonisolated func retry(_ task: EnqueuedTask) async throws -> Bool {
    try await retry(task.id)
  }

  /// Not here: a task is named by its ID.
  @available(*, unavailable, message: "give the task's id")
  @discardableResult
  public nonisolated func remove(_ task: EnqueuedTask) async throws -> Bool {
    try await remove(task.id)
  }

  /// Not here: a task is named by its ID.
  @available(*, unavailable, message: "give the task's id, or call reschedule(to:) of the task")
  @discardableResult
  public nonisolated func reschedule(
    _ task: EnqueuedTask,
    to date: Date
  ) async throws -> Bool {
    try await reschedule(task.id, to: date)
  }

  /// Not here: a task is named by its ID.
  @available(*, unavailable, message: "give the task's id, or call performNow() of the task")
  @discardableResult
  public nonisolated func performNow(_ task: EnqueuedTask) async throws -> Bool {
    try await performNow(task.id)
  }
}

extension TaskContext {
  /// Not here: several payloads have a label.
  @available(*, unavailable, message: "give several payloads as enqueue(contentsOf:)")
  @discardableResult
  public func enqueue<Payload: TaskPayload>(
    _ payloads: [Payload]
  ) async throws -> [EnqueuedTask] {
    try await enqueue(contentsOf: payloads)
  }
}

extension TaskAbandoned {
  /// Not here: the reason is a text.
  @available(
    *,
    unavailable,
    message: "give the reason as a text, or throw an error whose retryDecision is .stop"
  )
  public init(_ error: any Error) { self.init("\(error)") }
}
