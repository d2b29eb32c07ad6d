public import SystemFoundation

extension TaskQueue {
  /// Adds a task.
  ///
  /// The task is stored when the call returns. A handler needs no reference to its queue to add a
  /// task: its ``TaskContext`` has the same method.
  ///
  /// An argument that is left out comes from `options`, or else from the payload
  /// (``TaskPayload/options``), or else from the queue's ``TaskQueueConfiguration/taskDefaults``.
  ///
  /// - Parameters:
  ///   - payload: the payload that is passed to the handler.
  ///   - availableDate: the earliest date at which the task may be performed; by default now.
  ///   - delay: the time from now until the task may be performed; use it instead of a date.
  ///   - maxRetries: the maximum number of retries if the task fails; by default 10, so 11
  ///     attempts.
  ///   - usesBackoff: whether a retry waits for the delay of the queue's backoff; by default
  ///     `true`.
  ///   - priority: its rank among the available tasks; by default ``Priority/normal``.
  ///   - uniqueKey: the task's unique key: tasks with the same key are performed one at a time; by
  ///     default the payload's own (``TaskPayload/uniqueKey``).
  ///   - policy: what to do if a task with the same key is already waiting or being performed; by
  ///     default ``UniquePolicy/keep``.
  ///   - options: other options, for example a time limit, an expiry date or tags.
  /// - Returns: the new task, or an existing task with the same key (``UniquePolicy``).
  /// - Throws: a ``TaskQueueError`` if an argument is invalid or a duplicate is rejected; what the
  ///   payload's encoding throws; what the store throws; `CancellationError` if the call is
  ///   cancelled before it can replace a task, because another call for that task waits for an
  ///   unavailable store. After an error, the task is not added, unless the error says that the
  ///   outcome is unknown.
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
    return try await core.enqueue(NewTask(payload, uniqueKey, chosen, options))
  }

  /// Adds several tasks of one type in one step: all of them or, after an error, none.
  ///
  /// - Parameters:
  ///   - payloads: the payloads that are passed to the handlers, one for each task.
  ///   - options: the options of all of the tasks.
  ///   - uniqueKey: returns the unique key of a task. If it returns `nil`, and by default, the key
  ///     is the payload's own (``TaskPayload/uniqueKey``).
  /// - Returns: the tasks, in the order of the payloads.
  /// - Throws: the same errors as the method for a single payload. After an error that says that
  ///   the outcome is unknown, all of the tasks may have been added, or none.
  @discardableResult
  public nonisolated func enqueue<Payload: TaskPayload>(
    contentsOf payloads: some Sequence<Payload>,
    options: TaskOptions = TaskOptions(),
    uniqueKey: (Payload) -> String? = { _ in nil }
  ) async throws -> [EnqueuedTask] {
    try await core.enqueue(payloads.map { NewTask($0, uniqueKey($0), options) })
  }

  /// Adds a task with a name and any JSON as its payload, without a payload type.
  ///
  /// Register the task's handler with ``register(name:maxConcurrentTasks:perform:)`` or
  /// ``registerFallback(perform:)``. A handler that is registered for a payload type with this name
  /// also performs the task.
  ///
  /// - Parameters:
  ///   - name: the name under which its handler is registered.
  ///   - payload: the JSON that is passed to the handler; by default `null`.
  ///   - uniqueKey: the task's unique key: tasks with the same key are performed one at a time; by
  ///     default none.
  ///   - options: the options of the task.
  /// - Returns: the new task, or an existing task with the same key (``UniquePolicy``).
  /// - Throws: the same errors as the method with a payload type.
  @discardableResult
  public nonisolated func enqueue(
    name: String,
    _ payload: JSONValue = .null,
    uniqueKey: String? = nil,
    options: TaskOptions = TaskOptions()
  ) async throws -> EnqueuedTask {
    try await core.enqueue(NewTask(name, try StoredPayload(payload), uniqueKey, options))
  }
}

extension TaskQueue {
  /// Adds, in one step, tasks that may wait for each other: all of them or, after an error, none.
  ///
  /// ```swift
  /// try await queue.enqueue { tasks in
  ///   let album = try tasks.add(CreateAlbum(title: "Summer"))
  ///   let cover = try tasks.add(UploadCover())
  ///   try tasks.add(Share(), options: TaskOptions(dependencies: [album, cover]))
  /// }
  /// ```
  ///
  /// If a task in the store already has the unique key of one of them, none is added.
  ///
  /// - Parameter body: a closure that adds the tasks. It may be called more than once.
  /// - Returns: the tasks, in the order in which they were added.
  /// - Throws: what `body` throws; a ``TaskQueueError`` with the code
  ///   ``TaskQueueError/Code/unmetDependency`` if a new task depends on a task that is not in the
  ///   store or has ended without success, or with the code ``TaskQueueError/Code/duplicate`` if a
  ///   task already has the unique key of a new one; what the store throws. After an error that
  ///   says that the outcome is unknown, all of the tasks may have been added, or none.
  @discardableResult
  public nonisolated func enqueue(
    together body: (inout TaskDrafts) throws -> Void
  ) async throws -> [EnqueuedTask] {
    try await core.enqueue(together: body)
  }

  /// Adds, in one step, a batch of tasks and a follower, which starts when all of them have ended.
  ///
  /// ```swift
  /// let notice = Notify(album: album)
  /// let batch = try await queue.enqueue(contentsOf: photos, then: notice)
  /// ```
  ///
  /// By default, all tasks of the batch must succeed: as soon as one ends without success, the
  /// follower is cancelled, while the other tasks of the batch continue. The follower's
  /// ``TaskOptions/dependencyRule`` can allow them to end in any way. If there are no payloads, the
  /// follower is available at once.
  ///
  /// The handler of a task in the batch can add more tasks to the batch
  /// (``TaskContext/enqueueInBatch(_:options:)``). If a task in the store already has the unique
  /// key of one of the new tasks, none is added.
  ///
  /// - Parameters:
  ///   - payloads: the payloads of the tasks of the batch, one for each task.
  ///   - options: the options of the tasks of the batch.
  ///   - follower: the payload of the follower. It must have no unique key.
  ///   - followerOptions: the options of the follower.
  /// - Returns: the tasks of the batch, and the follower.
  /// - Throws: the same errors as ``enqueue(together:)``.
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

/// Tasks that were enqueued as a batch, and the follower that starts when all of them have ended.
public struct EnqueuedBatch: Sendable {
  /// The tasks of the batch, in the order of their payloads.
  public let tasks: [EnqueuedTask]
  /// The task that starts when all tasks of the batch have ended.
  public let follower: EnqueuedTask

  /// Returns how many tasks of the batch have ended, in this process or in another one.
  ///
  /// The event ``TaskEvent/batchProgressed(followedBy:_:)`` reports this each time a task ends.
  ///
  /// - Returns: the progress, which includes tasks that handlers have added; `nil` if the follower
  ///   is no longer in the store.
  /// - Throws: what the store throws.
  public func progress() async throws -> BatchProgress? {
    try await follower.record().map { $0.dependencies.batch ?? BatchProgress() }
  }

  /// Cancels the follower, and the ``tasks`` that have not ended.
  ///
  /// Tasks that handlers have added to the batch (``TaskContext/enqueueInBatch(_:options:)``)
  /// continue. To cancel those as well, give all tasks of the batch a tag, and call
  /// ``TaskQueue/cancel(matching:)``.
  ///
  /// - Throws: what the store throws; some tasks may have been cancelled by then.
  public func cancel() async throws {
    try await follower.cancel()
    for task in tasks { try await task.cancel() }
  }
}

extension TaskQueue {
  /// Returns a SQL statement that adds a task, for your own transaction.
  ///
  /// ```swift
  /// let statement = try queue.insertStatement(for: SendReceipt(order: number))
  /// try connection.execute(statement.text, statement.parameters)
  /// ```
  /// The statement does what `enqueue` would do with the same arguments, but without
  /// ``TaskMiddleware``. The task is stored when you execute the statement and commit the
  /// transaction. Then a queue that runs on the database,
  /// in this process or in another one, finds the task. If the store encrypts payloads, the
  /// statement contains the encrypted payload.
  ///
  /// This call never waits, so you can make it within a transaction. Before, call ``open()``, which
  /// creates the database objects that the statement needs.
  ///
  /// - Parameters:
  ///   - payload: the payload that is passed to the handler.
  ///   - uniqueKey: the task's unique key: tasks with the same key are performed one at a time; by
  ///     default the payload's own (``TaskPayload/uniqueKey``). If there is a duplicate, the
  ///     statement fails with ``UniquePolicy/reject``; with the other policies, it succeeds without
  ///     adding a task.
  ///   - options: the options of the task. Dates and delays count from this call.
  /// - Returns: the statement. Execute it only once, because it contains the task's ID.
  /// - Throws: a ``TaskQueueError`` if an argument is invalid, or if the store is not a SQL
  ///   database; what the payload's encoding throws.
  public nonisolated func insertStatement<Payload: TaskPayload>(
    for payload: Payload,
    uniqueKey: String? = nil,
    options: TaskOptions = TaskOptions()
  ) throws -> InsertStatement {
    try core.insertStatement(NewTask(payload, uniqueKey, options))
  }
}

// Calls that a programmer may guess, but that don't exist. With these declarations, the compiler's
// error says what to write instead.

extension TaskQueue {
  /// Unavailable: several payloads need a label.
  @available(*, unavailable, message: "give several payloads as enqueue(contentsOf:)")
  @discardableResult
  public nonisolated func enqueue<Payload: TaskPayload>(
    _ payloads: [Payload]
  ) async throws -> [EnqueuedTask] {
    try await enqueue(contentsOf: payloads)
  }

  /// Unavailable: the call needs the ID of the task.
  @available(*, unavailable, message: "give the task's id")
  @discardableResult
  public nonisolated func cancel(_ task: EnqueuedTask) async throws -> Bool {
    try await cancel(task.id)
  }

  /// Unavailable: the call needs the ID of the task.
  @available(*, unavailable, message: "give the task's id")
  @discardableResult
  public nonisolated func pause(_ task: EnqueuedTask) async throws -> Bool {
    try await pause(task.id)
  }

  /// Unavailable: the call needs the ID of the task.
  @available(*, unavailable, message: "give the task's id")
  @discardableResult
  public nonisolated func resume(_ task: EnqueuedTask) async throws -> Bool {
    try await resume(task.id)
  }

  /// Unavailable: the call needs the ID of the task.
  @available(*, unavailable, message: "give the task's id")
  @discardableResult
  public nonisolated func retry(_ task: EnqueuedTask) async throws -> Bool {
    try await retry(task.id)
  }

  /// Unavailable: the call needs the ID of the task.
  @available(*, unavailable, message: "give the task's id")
  @discardableResult
  public nonisolated func remove(_ task: EnqueuedTask) async throws -> Bool {
    try await remove(task.id)
  }

  /// Unavailable: the call needs the ID of the task.
  @available(*, unavailable, message: "give the task's id, or call reschedule(to:) of the task")
  @discardableResult
  public nonisolated func reschedule(
    _ task: EnqueuedTask,
    to date: Date
  ) async throws -> Bool {
    try await reschedule(task.id, to: date)
  }

  /// Unavailable: the call needs the ID of the task.
  @available(*, unavailable, message: "give the task's id, or call performNow() of the task")
  @discardableResult
  public nonisolated func performNow(_ task: EnqueuedTask) async throws -> Bool {
    try await performNow(task.id)
  }
}

extension TaskContext {
  /// Unavailable: several payloads need a label.
  @available(*, unavailable, message: "give several payloads as enqueue(contentsOf:)")
  @discardableResult
  public func enqueue<Payload: TaskPayload>(
    _ payloads: [Payload]
  ) async throws -> [EnqueuedTask] {
    try await enqueue(contentsOf: payloads)
  }
}

extension TaskAbandoned {
  /// Unavailable: the reason is a string.
  @available(
    *,
    unavailable,
    message: "give the reason as a string, or throw an error whose retryDecision is .stop"
  )
  public init(_ error: any Error) { self.init("\(error)") }
}
