#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
public import Foundation
#endif

extension TaskQueue {
  /// Adds a task.
  ///
  /// The task is stored when the call returns. A handler that adds a task to its own queue calls
  /// the method of its ``TaskContext``, so it needs no reference to the queue.
  ///
  /// An argument that is left out is taken from `options`, then from the payload's type
  /// (``TaskPayload/options-swift.type.property``), then from the queue's
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
    var chosen = TaskOptions(
      availableDate: availableDate,
      delay: delay,
      maxRetries: maxRetries,
      usesBackoff: usesBackoff,
      priority: priority,
      onDuplicate: policy
    )
    chosen.fill(from: options)
    chosen.fill(from: Payload.options)
    let draft = Draft(
      Payload.taskName,
      StoredPayload(payload),
      uniqueKey ?? payload.storedUniqueKey
    )
    return try await add(draft, chosen)
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
    var chosen = options
    chosen.fill(from: Payload.options)
    let name = Payload.taskName
    let drafts = payloads.map { payload in
      Draft(name, StoredPayload(payload), uniqueKey(payload) ?? payload.storedUniqueKey)
    }
    return try await add(drafts, chosen)
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
    let draft = Draft(name, try StoredPayload(payload), uniqueKey)
    return try await add(draft, options)
  }
}
