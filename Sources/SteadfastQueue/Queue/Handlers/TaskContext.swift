public import SystemFoundation

/// What a handler knows about the task that it performs, in addition to the payload.
public struct TaskContext: Sendable {
  let record: TaskRecord
  let queue: QueueCore
  let worker: Int
  let number: AttemptNumber
  /// The token of the task's lease.
  let leaseToken: UInt64
  /// What the worker's attempt knows of the task's memory.
  let memory: WorkerMemory
  // Most tasks have none. Then this is one word, and copying it costs nothing.
  private var occurrenceBox: OccurrenceBox?

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

  /// The task's ID, the same at each attempt.
  ///
  /// A server can recognise a repetition by it.
  public var id: TaskID { record.id }
  /// The name that the task is stored under; a former name if the type was renamed since.
  public var name: String { record.name }
  /// How many attempts have failed before this one; 0 on the first.
  public var retryCount: Int { record.retryCount }
  /// How many retries the task has.
  public var maxRetries: RetryLimit { record.maxRetries }
  /// Whether a failure of this attempt abandons the task.
  ///
  /// The handler can still restart the task (``TaskHandler/shouldRestart(_:after:in:)``).
  public var isLastAttempt: Bool { !record.maxRetries.allows(retryCount: record.nextRetryCount) }
  /// How often the task was interrupted: its process ended before the attempt did, or just before
  /// it began.
  public var interruptionCount: Int { record.interruptionCount }
  /// When the task was enqueued.
  public var createdDate: Date { record.createdDate }
  /// The date from which this attempt was allowed.
  public var availableDate: Date { record.availableDate }
  /// Whether a retry waits for the queue's backoff, or is due at once.
  public var usesBackoff: Bool { record.usesBackoff }
  /// The text of the last error; `nil` if no attempt has failed.
  public var lastError: String? { record.lastError }
  /// The last five failures, the oldest first (``TaskRecord/failures``).
  public var failures: [TaskFailure] { record.failures }
  /// The labels that the task was given.
  public var tags: Set<String> { record.tags }
  /// The task's rank among the available tasks.
  public var priority: TaskQueue.Priority { record.priority }
  /// The task's unique key; `nil` if it has none.
  public var uniqueKey: String? { record.uniqueKey }
  /// The task's order key; `nil` if it has none.
  public var orderKey: String? { record.orderKey }
  /// How long an attempt may take; `nil` if nothing limits it.
  public var timeLimit: Duration? { record.timeLimit }
  /// When the task is abandoned if it is not done; `nil` if it does not expire.
  public var expiryDate: Date? { record.expiryDate }

  /// The date for which a recurring task is performed; `nil` for other tasks.
  public var occurrence: TaskOccurrence? { occurrenceBox?.occurrence }

  mutating func setOccurrence(_ occurrence: TaskOccurrence) {
    occurrenceBox = OccurrenceBox(occurrence)
  }

  /// The tasks that this one has waited for, and what became of them.
  public var dependencies: TaskDependencies { record.dependencies }

  /// Reports the task's progress to observers and callers that hold the task: from 0 to 1.
  ///
  /// A fraction outside of that range is limited to it; not-a-number is ignored. Progress is not
  /// stored. Reports after the handler has ended, or after its Swift task was cancelled, are
  /// ignored.
  public func report(progress fraction: Double) {
    queue.report(fraction, of: record, by: worker, number)
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

/// Follow-up tasks: a handler needs no queue of its own to add them.
extension TaskContext {
  /// Adds a task to the queue that performs this one.
  ///
  /// The task is stored when the call returns, whatever then becomes of the attempt. The next
  /// attempt adds the task again. A unique key made of ``id`` prevents that until the added task
  /// has ended, and ``TaskOptions/uniqueFor`` prevents it for a time of your choice.
  ///
  /// ```swift
  /// await queue.register(Download.self) { download, context in
  ///   let unpack = Unpack(file: try await download.fetch())
  ///   try await context.enqueue(unpack, uniqueKey: "unpack \(context.id)")
  /// }
  /// ```
  ///
  /// - Parameters:
  ///   - payload: what the handler is given.
  ///   - availableDate: the date from which the task may be performed; by default now.
  ///   - delay: how long from now until the task may be performed, in place of a date.
  ///   - maxRetries: how often it is tried again when it fails; by default 10 times, so 11
  ///     attempts.
  ///   - usesBackoff: whether a retry waits for the queue's backoff, or is due at once; by default
  ///     it waits.
  ///   - priority: its rank among the available tasks; by default ``TaskQueue/Priority/normal``.
  ///   - uniqueKey: a key of which one task at a time is performed; by default the payload's own
  ///     (``TaskPayload/uniqueKey``).
  ///   - policy: what to do if a task with the key waits or is performed already; by default
  ///     ``UniquePolicy/keep``.
  ///   - options: everything else: a time limit, an expiry date, tags.
  /// - Returns: the task, or the one with the same key that stands for it (``UniquePolicy``).
  /// - Throws: as the method of ``TaskQueue`` with the same arguments; ``TaskSuspended`` if the
  ///   attempt has suspended the task, so that a handler that catches too much adds nothing.
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
    return try await queue.enqueue(TaskDraft(payload, uniqueKey, chosen, options))
  }

  /// Adds several tasks of one type to the queue that performs this one, in one step.
  ///
  /// All of them are added or, if it throws, none.
  ///
  /// - Parameters:
  ///   - payloads: what the handlers are given, one payload for each task.
  ///   - options: the options of all of the tasks.
  ///   - uniqueKey: returns the key of a task, of which one at a time is performed. If it returns
  ///     `nil`, and by default, the key is the payload's own (``TaskPayload/uniqueKey``).
  /// - Returns: the tasks, in the order of the payloads.
  /// - Throws: as ``TaskQueue/enqueue(contentsOf:options:uniqueKey:)``; ``TaskSuspended``.
  @discardableResult
  public func enqueue<Payload: TaskPayload>(
    contentsOf payloads: some Sequence<Payload>,
    options: TaskOptions = TaskOptions(),
    uniqueKey: (Payload) -> String? = { _ in nil }
  ) async throws -> [EnqueuedTask] {
    try checkIsNotSuspended()
    return try await queue.enqueue(payloads.map { TaskDraft($0, uniqueKey($0), options) })
  }

  /// Adds a task that has a name and any JSON to the queue that performs this one.
  ///
  /// - Parameters:
  ///   - name: the name under which its handler is found.
  ///   - payload: what the handler is given; by default `null`.
  ///   - uniqueKey: a key of which one task at a time is performed; by default none.
  ///   - options: the options of the task.
  /// - Returns: the task, or the one with the same key that stands for it (``UniquePolicy``).
  /// - Throws: as ``TaskQueue/enqueue(name:_:uniqueKey:options:)``; ``TaskSuspended``.
  @discardableResult
  public func enqueue(
    name: String,
    _ payload: JSONValue = .null,
    uniqueKey: String? = nil,
    options: TaskOptions = TaskOptions()
  ) async throws -> EnqueuedTask {
    try checkIsNotSuspended()
    return try await queue.enqueue(
      TaskDraft(name, try StoredPayload(payload), uniqueKey, options)
    )
  }
}

extension TaskContext {
  /// Adds a task to the batch of this one: the batch's follower waits for it, too.
  ///
  /// The task is stored when the call returns, whatever then becomes of the attempt. The next
  /// attempt adds it again. The batch's follower has not begun by then, because it waits for this
  /// task.
  ///
  /// - Parameters:
  ///   - payload: what the handler is given. It must have no unique key.
  ///   - options: the options of the task, without ``TaskOptions/dependencies`` and
  ///     ``TaskOptions/orderKey``: the task could wait for the batch's follower, which waits for
  ///     it.
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
