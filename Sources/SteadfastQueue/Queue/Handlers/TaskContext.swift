public import SystemFoundation

/// The information that a handler gets about its task, in addition to the payload.
public struct TaskContext: Sendable {
  let record: TaskRecord
  let queue: QueueCore
  let worker: Int
  let number: AttemptNumber
  /// The token of the attempt's ``Lease``.
  let leaseToken: UInt64
  let memory: WorkerMemory
  // Most tasks have no occurrence. A `nil` box is only one word, and copying it costs nothing.
  private var occurrenceBox: OccurrenceBox?
  private var startDate = Date.distantPast

  init(
    _ task: ClaimedTask,
    _ queue: QueueCore,
    _ worker: Int,
    _ number: AttemptNumber,
    _ memory: WorkerMemory
  ) {
    record = task.record
    leaseToken = task.lease.token
    self.queue = queue
    self.worker = worker
    self.number = number
    self.memory = memory
  }

  /// The task's ID, which is the same in each attempt.
  ///
  /// Send the ID to a server as an idempotency key, so that the server recognises a repeated
  /// request.
  public var id: TaskID { record.id }
  /// The name under which the task is stored; a former name if the type has been renamed since.
  public var name: String { record.name }
  /// How many attempts have failed before this one; 0 on the first.
  public var retryCount: Int { record.retryCount }
  /// The maximum number of retries.
  public var maxRetries: RetryLimit { record.maxRetries }
  /// Whether the task is abandoned if this attempt fails.
  ///
  /// The handler can still restart the task (``TaskHandler/shouldRestart(_:after:in:)``).
  public var isLastAttempt: Bool { !record.maxRetries.allows(retryCount: record.nextRetryCount) }
  /// How many times a process ended during an attempt of the task, or just before one.
  public var interruptionCount: Int { record.interruptionCount }
  /// When the task was enqueued.
  public var createdDate: Date { record.createdDate }
  /// The earliest date at which this attempt could start.
  public var availableDate: Date { record.availableDate }
  /// How long the task has waited since ``availableDate``, when the attempt started.
  public var waited: Duration { startDate.duration(since: record.availableDate) }
  /// The name of the queue that performs the task.
  public var queueName: String { queue.name }
  /// Whether a retry waits for the queue's backoff, or is due at once.
  public var usesBackoff: Bool { record.usesBackoff }
  /// The text of the last error; `nil` if no attempt has failed.
  public var lastError: String? { record.lastError }
  /// The last five failures, the oldest first (``TaskRecord/failures``).
  public var failures: [TaskFailure] { record.failures }
  /// The task's labels.
  public var tags: Set<String> { record.tags }
  /// Text about the task, such as a tenant or the ID of a trace (``TaskOptions/metadata``).
  ///
  /// The tasks that the handler enqueues through this context inherit it.
  public var metadata: [String: String] { record.metadata }
  /// The task's rank among the available tasks; the highest rank goes first.
  public var priority: TaskQueue.Priority { record.priority }
  /// The task's unique key; `nil` if it has none.
  public var uniqueKey: String? { record.uniqueKey }
  /// The task's order key; `nil` if it has none.
  public var orderKey: String? { record.orderKey }
  /// The maximum duration of an attempt; `nil` if there is no limit.
  public var timeLimit: Duration? { record.timeLimit }
  /// The date at which the task is abandoned if it has not ended; `nil` if there is no such date.
  public var expiryDate: Date? { record.expiryDate }

  /// The date of the schedule for which a recurring task is performed; `nil` for other tasks.
  public var occurrence: TaskOccurrence? { occurrenceBox?.occurrence }

  mutating func setStart(_ date: Date) { startDate = date }

  mutating func setOccurrence(_ occurrence: TaskOccurrence) {
    occurrenceBox = OccurrenceBox(occurrence)
  }

  /// The tasks that this one has waited for, and their outcomes.
  public var dependencies: TaskDependencies { record.dependencies }

  /// Reports the task's progress to observers, and to callers that have its ``EnqueuedTask``.
  ///
  /// The progress is not stored. A report is ignored if the handler has returned, or if its Swift
  /// task was cancelled.
  ///
  /// - Parameter fraction: the progress, from 0 to 1. A number outside of this range is clamped to
  ///   it; not-a-number is ignored.
  public func report(progress fraction: Double) {
    queue.reportProgress(fraction, of: record, by: worker, number)
  }
}

extension TaskContext: CustomStringConvertible {
  /// The task's name, ID and state, without its payload.
  public var description: String { "attempt of \(record)" }
}

private final class OccurrenceBox: Sendable {
  let occurrence: TaskOccurrence

  init(_ occurrence: TaskOccurrence) { self.occurrence = occurrence }
}

extension TaskContext {
  /// Adds a task to the queue that performs this one.
  ///
  /// The task is stored when the call returns, even if the attempt then fails. The next attempt
  /// adds the task again. A unique key that contains ``id`` prevents that until the added task has
  /// ended, and ``TaskOptions/uniqueFor`` prevents it for a period that you choose.
  ///
  /// The added task inherits this task's ``metadata``, except for the keys that it sets itself.
  ///
  /// ```swift
  /// await queue.register(Download.self) { download, context in
  ///   let unpack = Unpack(file: try await download.fetch())
  ///   try await context.enqueue(unpack, uniqueKey: "unpack \(context.id)")
  /// }
  /// ```
  ///
  /// - Parameters:
  ///   - payload: the payload that is passed to the handler.
  ///   - availableDate: the earliest date at which the task may be performed; by default now.
  ///   - delay: the time from now until the task may be performed; use it instead of a date.
  ///   - maxRetries: the maximum number of retries if the task fails; by default 10, so 11
  ///     attempts.
  ///   - usesBackoff: whether a retry waits for the queue's backoff, or is due at once; by default
  ///     it waits.
  ///   - priority: the task's rank among the available tasks; by default
  ///     ``TaskQueue/Priority/normal``.
  ///   - uniqueKey: the task's unique key: tasks with the same key are performed one at a time; by
  ///     default the payload's own (``TaskPayload/uniqueKey``).
  ///   - policy: what to do if a task with the same key is already waiting or being performed; by
  ///     default ``UniquePolicy/keep``.
  ///   - options: all other options, such as a time limit, an expiry date and tags.
  /// - Returns: the new task, or an existing task with the same key (``UniquePolicy``).
  /// - Throws: the errors of the method of ``TaskQueue`` with the same arguments; ``TaskSuspended``
  ///   if the attempt has already suspended the task.
  @discardableResult
  public func enqueue<Payload: TaskPayload>(
    _ payload: Payload,
    availableDate: Date? = nil,
    delay: Duration? = nil,
    maxRetries: RetryLimit? = nil,
    usesBackoff: Bool? = nil,
    priority: TaskQueue.Priority? = nil,
    uniqueKey: String? = nil,
    onDuplicate policy: UniquePolicy? = nil,
    options: TaskOptions = TaskOptions()
  ) async throws -> EnqueuedTask {
    try checkIsNotSuspended()
    let chosen = TaskOptions(
      availableDate: availableDate,
      delay: delay,
      maxRetries: maxRetries,
      usesBackoff: usesBackoff,
      priority: priority,
      onDuplicate: policy
    )
    return try await queue.enqueue(
      NewTask(payload, uniqueKey, chosen, options).inheriting(from: record)
    )
  }

  /// Adds several tasks of one type to the queue that performs this one.
  ///
  /// Either all tasks are added or, if the call throws, none.
  ///
  /// - Parameters:
  ///   - payloads: the payloads that are passed to the handlers, one for each task.
  ///   - options: the options of all of the tasks.
  ///   - uniqueKey: returns the unique key of a task. If it returns `nil`, and by default, the key
  ///     is the payload's own (``TaskPayload/uniqueKey``).
  /// - Returns: the tasks, in the order of the payloads.
  /// - Throws: the errors of ``TaskQueue/enqueue(contentsOf:options:uniqueKey:)``;
  ///   ``TaskSuspended`` if the attempt has already suspended the task.
  @discardableResult
  public func enqueue<Payload: TaskPayload>(
    contentsOf payloads: some Sequence<Payload>,
    options: TaskOptions = TaskOptions(),
    uniqueKey: (Payload) -> String? = { _ in nil }
  ) async throws -> [EnqueuedTask] {
    try checkIsNotSuspended()
    return try await queue.enqueue(
      payloads.map { NewTask($0, uniqueKey($0), options).inheriting(from: record) }
    )
  }

  /// Adds a task with a name and any JSON as its payload to the queue that performs this one.
  ///
  /// - Parameters:
  ///   - name: the name under which the new task's handler is registered.
  ///   - payload: the JSON that is passed to the handler; by default `null`.
  ///   - uniqueKey: the task's unique key: tasks with the same key are performed one at a time; by
  ///     default none.
  ///   - options: the options of the task.
  /// - Returns: the new task, or an existing task with the same key (``UniquePolicy``).
  /// - Throws: the errors of ``TaskQueue/enqueue(name:_:uniqueKey:options:)``; ``TaskSuspended`` if
  ///   the attempt has already suspended the task.
  @discardableResult
  public func enqueue(
    name: String,
    _ payload: JSONValue = .null,
    uniqueKey: String? = nil,
    options: TaskOptions = TaskOptions()
  ) async throws -> EnqueuedTask {
    try checkIsNotSuspended()
    return try await queue.enqueue(
      NewTask(name, try StoredPayload(payload), uniqueKey, options).inheriting(from: record)
    )
  }
}

extension TaskContext {
  /// Adds a task to the batch that this task belongs to, so that the batch's follower waits for the
  /// added task, too.
  ///
  /// The task is stored when the call returns, even if the attempt then fails. The next attempt
  /// adds the task again. The batch's follower can't start before the call, because it also waits
  /// for the task whose handler makes the call.
  ///
  /// - Parameters:
  ///   - payload: the payload that is passed to the handler. It must have no unique key.
  ///   - options: the options of the task, without ``TaskOptions/dependencies`` and
  ///     ``TaskOptions/orderKey``. With these, the task and the batch's follower could wait for
  ///     each other forever.
  /// - Returns: the task.
  /// - Throws: a ``TaskQueueError`` if this task belongs to no batch, or if an option is invalid;
  ///   what the store throws.
  @discardableResult
  public func enqueueInBatch<Payload: TaskPayload>(
    _ payload: Payload,
    options: TaskOptions = TaskOptions()
  ) async throws -> EnqueuedTask {
    try await enqueueInBatch(contentsOf: CollectionOfOne(payload), options: options)[0]
  }

  /// Adds several tasks to the batch that this task belongs to.
  ///
  /// Either all tasks are added or, if the call throws, none. Each is added in the same way as by
  /// ``enqueueInBatch(_:options:)``.
  ///
  /// - Parameters:
  ///   - payloads: the payloads that are passed to the handlers, one for each task.
  ///   - options: the options of all of the tasks.
  /// - Returns: the tasks, in the order of the payloads.
  /// - Throws: the errors of ``enqueueInBatch(_:options:)``.
  @discardableResult
  public func enqueueInBatch<Payload: TaskPayload>(
    contentsOf payloads: some Sequence<Payload>,
    options: TaskOptions = TaskOptions()
  ) async throws -> [EnqueuedTask] {
    guard let follower = dependencies.follower else {
      throw TaskQueueError(
        .invalidArgument,
        "the task \(id) ('\(name)') belongs to no batch, so no tasks can be added to its batch; "
          + "enqueue the first tasks of a batch with enqueue(contentsOf:then:)"
      )
    }
    return try await queue.enqueue(
      contentsOf: Array(payloads),
      options: options,
      inBatchBefore: follower,
      inheritingFrom: record
    )
  }
}
