import Synchronization

#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
public import Foundation
#endif

extension TaskQueue {
  /// Adds a task.
  ///
  /// When it returns, the task is stored.
  ///
  /// - Parameters:
  ///   - payload: what the handler is given.
  ///   - availableDate: the date from which the task may be performed; by default now.
  ///   - maxRetries: how often it is tried again when it fails; by default 10 times, so 11 attempts.
  ///   - usesBackoff: whether a retry waits for the queue's backoff, or is due at once.
  ///   - priority: its rank among the tasks that are available.
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
    maxRetries: RetryLimit = 10,
    usesBackoff: Bool = true,
    priority: Priority = .normal,
    uniqueKey: String? = nil,
    onDuplicate policy: UniquePolicy = .keep
  ) async throws -> EnqueuedTask {
    let options = TaskOptions(
      availableDate: availableDate,
      maxRetries: maxRetries,
      usesBackoff: usesBackoff,
      priority: priority
    )
    let tasks = try await add([(payload, uniqueKey)], options, policy)
    return tasks[0]
  }

  /// Adds several tasks of one type in one step: all of them or, if it throws, none.
  ///
  /// A crash while they are being stored may leave the first of them, and so may a store whose error
  /// says that the outcome is unknown.
  ///
  /// - Parameters:
  ///   - payloads: what the handlers are given, a task each.
  ///   - availableDate: the date from which the tasks may be performed; by default now.
  ///   - maxRetries: how often each is tried again when it fails; by default 10 times.
  ///   - usesBackoff: whether a retry waits for the queue's backoff, or is due at once.
  ///   - priority: their rank among the tasks that are available.
  ///   - policy: what to do if a task bears a key already. With ``UniquePolicy/reject``, the tasks
  ///     whose keys are free have been added when it throws.
  ///   - uniqueKey: the key of each task, that only one task may bear; by default none.
  /// - Returns: the tasks, in the order of the payloads.
  /// - Throws: as ``enqueue(_:availableDate:maxRetries:usesBackoff:priority:uniqueKey:onDuplicate:)``.
  @discardableResult
  public nonisolated func enqueue<Payload: TaskPayload>(
    contentsOf payloads: some Sequence<Payload>,
    availableDate: Date? = nil,
    maxRetries: RetryLimit = 10,
    usesBackoff: Bool = true,
    priority: Priority = .normal,
    onDuplicate policy: UniquePolicy = .keep,
    uniqueKey: (Payload) -> String? = { _ in nil }
  ) async throws -> [EnqueuedTask] {
    let options = TaskOptions(
      availableDate: availableDate,
      maxRetries: maxRetries,
      usesBackoff: usesBackoff,
      priority: priority
    )
    return try await add(payloads.map { ($0, uniqueKey($0)) }, options, policy)
  }

  private nonisolated func add<Payload: TaskPayload>(
    _ payloads: [(value: Payload, uniqueKey: String?)],
    _ options: TaskOptions,
    _ policy: UniquePolicy
  ) async throws -> [EnqueuedTask] {
    try await open()
    try options.validate()
    guard !payloads.isEmpty else { return [] }
    let now = self.now
    let records = payloads.map { payload in
      TaskRecord(
        id: ids.withLock { $0.next(at: now) },
        name: Payload.taskName,
        payload: StoredPayload(payload.value),
        priority: options.priority,
        createdDate: now,
        maxRetries: options.maxRetries,
        usesBackoff: options.usesBackoff,
        uniqueKey: payload.uniqueKey,
        availableDate: options.availableDate?.storable ?? now
      )
    }
    let tasks = try await insert(records, replacesTwins: policy == .replace)
    if policy == .reject { try Self.reject(zip(records, tasks)) }
    return tasks
  }

  private nonisolated func insert(
    _ records: [TaskRecord],
    replacesTwins: Bool
  ) async throws -> [EnqueuedTask] {
    // Made before the tasks can be performed, so that no outcome is missed.
    let cells = records.map { outcomes.cell(of: $0.id) }
    for record in records { hub.willEnqueue(record) }
    let results: [ChangeOutcome]
    do {
      results = try await keep(records, replacesTwins: replacesTwins)
    } catch {
      for record in records { hub.didNotEnqueue(record) }
      // A twin that was to be replaced may have been passed over meanwhile.
      machine.withLock { $0.workArrived() }
      wake.fire()
      throw error
    }
    return zip(zip(records, cells), results).map { task, result in
      inserted(task.0, task.1, result)
    }
  }

  /// Has the store keep the tasks.
  ///
  /// A twin to be replaced that the store was just changing has been changed when it answers: then
  /// it is asked once more.
  private nonisolated func keep(
    _ records: [TaskRecord],
    replacesTwins: Bool
  ) async throws -> [ChangeOutcome] {
    var results = try await store.apply(
      records.map { .insert($0, replacesTwin: replacesTwins) },
      durability: .durable
    )
    guard replacesTwins else { return results }
    for (index, record) in records.enumerated() {
      while case .duplicate = results[index] {
        results[index] = try await store.apply(
          [.insert(record, replacesTwin: true)],
          durability: .durable
        )[0]
      }
    }
    return results
  }

  private nonisolated func inserted(
    _ record: TaskRecord,
    _ cell: OutcomeCell,
    _ result: ChangeOutcome
  ) -> EnqueuedTask {
    switch result {
    case .duplicate(let twin):
      hub.didNotEnqueue(record)
      return EnqueuedTask(cell: outcomes.cell(of: twin), isNew: false, queue: self)
    case .replaced(let twin):
      outcomes.resolve(twin, .cancelled)
      hub.post(.cancelled(twin))
    case .done, .stale:
      break
    }
    hub.didEnqueue(record)
    if handlers[record.name] == nil { postUnhandled(record) }
    becomesAvailable(at: record.availableDate)
    return EnqueuedTask(cell: cell, isNew: true, queue: self)
  }

  private static func reject(
    _ tasks: some Sequence<(TaskRecord, EnqueuedTask)>
  ) throws(TaskQueueError) {
    guard let (record, twin) = tasks.first(where: { !$0.1.isNew }) else { return }
    throw TaskQueueError(
      .duplicate,
      "a task with the unique key '\(record.uniqueKey ?? "")' is there already: \(twin.id)"
    )
  }

  nonisolated func postUnhandled(_ record: TaskRecord) {
    hub.post(
      .unhandled(record, reason: "no handler is registered for the name '\(record.name)'")
    )
  }
}
