import Synchronization

#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
public import Foundation
#endif

extension TaskQueue {
  /// Adds a task.
  ///
  /// When it returns, the task is stored. A handler may call it, on the same queue too.
  ///
  /// - Parameters:
  ///   - payload: what the handler is given.
  ///   - availableDate: the date from which the task may be performed; by default now.
  ///   - maxRetries: how often it is tried again when it fails. Left out, this and the next three
  ///     are the queue's ``TaskQueueConfiguration/taskDefaults``: 10 retries, so 11 attempts.
  ///   - usesBackoff: whether a retry waits for the queue's backoff, or is due at once.
  ///   - priority: its rank among the tasks that are available.
  ///   - timeLimit: how long one attempt may take. Then its task is cancelled, and it has failed with
  ///     a `TimeoutError`, whatever it returns or throws.
  ///   - expiryDate: the date from which no attempt begins any more: a task that is not done by then
  ///     is abandoned when its turn comes, or when its next retry would come too late.
  ///   - tags: labels by which the task can be found, and cancelled together with others.
  ///   - uniqueKey: a key that only one task may bear. It is borne until the task has ended, and by
  ///     a kept task for as long as it is kept.
  ///   - policy: what to do if a task bears the key already.
  /// - Returns: the task; with ``UniquePolicy/keep``, the one that was there.
  /// - Throws: a ``TaskQueueError`` if an argument makes no sense or a duplicate is rejected; what
  ///   the payload's encoding throws; what the store throws: then the task was not
  ///   added, unless the error says that the outcome is unknown.
  @discardableResult
  public nonisolated func enqueue<Payload: TaskPayload>(
    _ payload: Payload,
    availableDate: Date? = nil,
    maxRetries: RetryLimit? = nil,
    usesBackoff: Bool? = nil,
    priority: Priority? = nil,
    timeLimit: Duration? = nil,
    expiryDate: Date? = nil,
    tags: Set<String> = [],
    uniqueKey: String? = nil,
    onDuplicate policy: UniquePolicy = .keep
  ) async throws -> EnqueuedTask {
    let options = TaskOptions(
      availableDate: availableDate,
      maxRetries: maxRetries,
      usesBackoff: usesBackoff,
      priority: priority,
      timeLimit: timeLimit,
      expiryDate: expiryDate,
      tags: tags
    )
    let draft = Draft(Payload.taskName, StoredPayload(payload), uniqueKey)
    return try await add(CollectionOfOne(draft), options, policy)[0]
  }

  /// Adds several tasks of one type in one step: all of them or, if it throws, none.
  ///
  /// - Parameters:
  ///   - payloads: what the handlers are given, a task each.
  ///   - availableDate: the date from which the tasks may be performed; by default now.
  ///   - maxRetries: how often each is tried again when it fails. Left out, this and the next three
  ///     are the queue's ``TaskQueueConfiguration/taskDefaults``: 10 retries, so 11 attempts.
  ///   - usesBackoff: whether a retry waits for the queue's backoff, or is due at once.
  ///   - priority: their rank among the tasks that are available.
  ///   - timeLimit: how long one attempt may take. Then its task is cancelled, and it has failed with
  ///     a `TimeoutError`, whatever it returns or throws.
  ///   - expiryDate: the date from which no attempt begins any more: a task that is not done by then
  ///     is abandoned when its turn comes, or when its next retry would come too late.
  ///   - tags: labels by which the tasks can be found, and cancelled together with others.
  ///   - policy: what to do if a task bears a key already.
  ///   - uniqueKey: the key of each task, that only one task may bear; by default none.
  /// - Returns: the tasks, in the order of the payloads.
  /// - Throws: as for a single task. After an error that says that the outcome is unknown, all of
  ///   the tasks have been added, or none.
  @discardableResult
  public nonisolated func enqueue<Payload: TaskPayload>(
    contentsOf payloads: some Sequence<Payload>,
    availableDate: Date? = nil,
    maxRetries: RetryLimit? = nil,
    usesBackoff: Bool? = nil,
    priority: Priority? = nil,
    timeLimit: Duration? = nil,
    expiryDate: Date? = nil,
    tags: Set<String> = [],
    onDuplicate policy: UniquePolicy = .keep,
    uniqueKey: (Payload) -> String? = { _ in nil }
  ) async throws -> [EnqueuedTask] {
    let options = TaskOptions(
      availableDate: availableDate,
      maxRetries: maxRetries,
      usesBackoff: usesBackoff,
      priority: priority,
      timeLimit: timeLimit,
      expiryDate: expiryDate,
      tags: tags
    )
    let drafts = payloads.map { payload in
      Draft(Payload.taskName, StoredPayload(payload), uniqueKey(payload))
    }
    return try await add(drafts, options, policy)
  }

  /// Adds a task that has a name and any JSON, and no payload type.
  ///
  /// Its handler is registered with ``register(name:maxConcurrentTasks:perform:)``, or
  /// ``registerFallback(perform:)``; one that is registered for a payload type of this name will do
  /// too.
  ///
  /// - Parameters:
  ///   - name: the name under which its handler is found.
  ///   - payload: what the handler is given; by default `null`.
  ///   - availableDate: the date from which the task may be performed; by default now.
  ///   - maxRetries: how often it is tried again when it fails. Left out, this and the next three
  ///     are the queue's ``TaskQueueConfiguration/taskDefaults``: 10 retries, so 11 attempts.
  ///   - usesBackoff: whether a retry waits for the queue's backoff, or is due at once.
  ///   - priority: its rank among the tasks that are available.
  ///   - timeLimit: how long one attempt may take. Then its task is cancelled, and it has failed with
  ///     a `TimeoutError`, whatever it returns or throws.
  ///   - expiryDate: the date from which no attempt begins any more: a task that is not done by then
  ///     is abandoned when its turn comes, or when its next retry would come too late.
  ///   - tags: labels by which the task can be found, and cancelled together with others.
  ///   - uniqueKey: a key that only one task may bear.
  ///   - policy: what to do if a task bears the key already.
  /// - Returns: the task; with ``UniquePolicy/keep``, the one that was there.
  /// - Throws: as for a task with a payload type.
  @discardableResult
  public nonisolated func enqueue(
    name: String,
    _ payload: JSONValue = .null,
    availableDate: Date? = nil,
    maxRetries: RetryLimit? = nil,
    usesBackoff: Bool? = nil,
    priority: Priority? = nil,
    timeLimit: Duration? = nil,
    expiryDate: Date? = nil,
    tags: Set<String> = [],
    uniqueKey: String? = nil,
    onDuplicate policy: UniquePolicy = .keep
  ) async throws -> EnqueuedTask {
    let options = TaskOptions(
      availableDate: availableDate,
      maxRetries: maxRetries,
      usesBackoff: usesBackoff,
      priority: priority,
      timeLimit: timeLimit,
      expiryDate: expiryDate,
      tags: tags
    )
    let draft = Draft(name, StoredPayload(payload, version: 1), uniqueKey)
    return try await add(CollectionOfOne(draft), options, policy)[0]
  }
}

extension TaskQueue {
  /// What makes a new task different from others that are added with it.
  private struct Draft {
    let name: String
    let payload: StoredPayload
    let uniqueKey: String?

    init(_ name: String, _ payload: StoredPayload, _ uniqueKey: String?) {
      self.name = name
      self.payload = payload
      self.uniqueKey = uniqueKey
    }
  }

  private nonisolated func add(
    _ drafts: some Collection<Draft>,
    _ options: TaskOptions,
    _ policy: UniquePolicy
  ) async throws -> [EnqueuedTask] {
    try await open()
    guard !drafts.isEmpty else { return [] }
    // Identities are random: that one is taken means that another process draws the same ones.
    for _ in 0..<8 {
      let now = self.now
      let records = try drafts.map { draft throws(TaskQueueError) in
        try options.record(
          id: ids.withLock { $0.next(at: now) },
          name: draft.name,
          payload: draft.payload,
          uniqueKey: draft.uniqueKey,
          configuration: configuration,
          now: now
        )
      }
      if let tasks = try await insert(records, policy, now) { return tasks }
    }
    throw TaskQueueError(
      .storeFailed,
      "the store (\(store)) holds tasks with the identities that the queue '\(name)' draws: two "
        + "queues on one store must not have the same seed as their randomness"
    )
  }

  /// Has the store keep new tasks; `nil` if it holds tasks with their identities.
  private nonisolated func insert(
    _ records: [TaskRecord],
    _ policy: UniquePolicy,
    _ now: Date
  ) async throws -> [EnqueuedTask]? {
    // Made before the tasks can be performed, so that no outcome is missed.
    var tasks = records.map { record in
      EnqueuedTask(cell: outcomes.cell(of: record.id), isNew: true, queue: self)
    }
    if hub.isObserved { for record in records { hub.willEnqueue(record) } }
    var results: [ChangeOutcome]
    do {
      results = try await store.apply(
        records.map { .insert($0, onDuplicate: policy) },
        durability: .durable
      )
      if policy == .replace { try await replaceTwins(of: records, &results) }
    } catch {
      for record in records { hub.didNotEnqueue(record) }
      // A twin that was to be replaced may have been passed over meanwhile.
      machine.withLock { $0.workArrived() }
      wake.fire()
      throw error
    }
    guard !results.contains(.identityTaken) else {
      for record in records { hub.didNotEnqueue(record) }
      return nil
    }
    if policy == .reject, let error = rejection(of: records, results) {
      for record in records { hub.didNotEnqueue(record) }
      throw error
    }
    for index in records.indices {
      if let twin = inserted(records[index], results[index], now) { tasks[index] = twin }
    }
    return tasks
  }

  /// The error for the first task that was rejected, if one was.
  private nonisolated func rejection(
    of records: [TaskRecord],
    _ results: [ChangeOutcome]
  ) -> TaskQueueError? {
    for (record, result) in zip(records, results) {
      guard case .duplicate(let twin) = result else { continue }
      return TaskQueueError(
        .duplicate,
        "a task with the unique key '\(record.uniqueKey ?? "")' is there already: \(twin)"
      )
    }
    return nil
  }

  /// Has the store replace the twins that it has not.
  ///
  /// A twin that it was just changing has been changed when it answers: then it is asked once more.
  private nonisolated func replaceTwins(
    of records: [TaskRecord],
    _ results: inout [ChangeOutcome]
  ) async throws {
    for (index, record) in records.enumerated() {
      while case .duplicate = results[index] {
        results[index] = try await store.apply(
          [.insert(record, onDuplicate: .replace)],
          durability: .durable
        )[0]
      }
    }
  }

  /// Tells what became of a new task.
  ///
  /// Returns the twin, if that was kept instead.
  private nonisolated func inserted(
    _ record: TaskRecord,
    _ result: ChangeOutcome,
    _ now: Date
  ) -> EnqueuedTask? {
    switch result {
    case .duplicate(let twin):
      hub.didNotEnqueue(record)
      return EnqueuedTask(cell: outcomes.cell(of: twin), isNew: false, queue: self)
    case .replaced(let twin):
      outcomes.resolve(twin, .cancelled)
      hub.post(.cancelled(twin))
    case .done, .stale, .identityTaken, .batchRefused:
      break
    }
    hub.didEnqueue(record)
    if hub.isObserved, handlers[record.name] == nil { postUnhandled(record) }
    becomesAvailable(at: record.availableDate, after: now)
    return nil
  }

  nonisolated func postUnhandled(_ record: TaskRecord) {
    hub.post(
      .unhandled(record, reason: "no handler is registered for the name '\(record.name)'")
    )
  }
}
