#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
public import Foundation
#endif

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
    return try await queue.enqueue(
      payload,
      availableDate: availableDate,
      delay: delay,
      maxRetries: maxRetries,
      usesBackoff: usesBackoff,
      priority: priority,
      uniqueKey: uniqueKey,
      onDuplicate: policy,
      options: options
    )
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
    return try await queue.enqueue(contentsOf: payloads, options: options, uniqueKey: uniqueKey)
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
    return try await queue.enqueue(name: name, payload, uniqueKey: uniqueKey, options: options)
  }
}
