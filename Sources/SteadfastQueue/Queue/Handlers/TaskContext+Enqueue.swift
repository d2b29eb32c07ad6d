#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
public import Foundation
#endif

/// Follow-up tasks: a handler needs no queue of its own to add them.
extension TaskContext {
  /// Adds a task to the queue that performs this one.
  ///
  /// When it returns, the task is stored, whatever then becomes of the attempt. The next attempt adds
  /// it again; a unique key made of ``id`` keeps it from that until the added task has
  /// ended, and for as long as it is kept after that.
  ///
  /// ```swift
  /// await queue.register(Download.self) { download, context in
  ///   let file = try await download.fetch()
  ///   try await context.enqueue(Unpack(file: file), uniqueKey: "unpack \(context.id)")
  /// }
  /// ```
  ///
  /// - Parameters:
  ///   - payload: what the handler is given.
  ///   - availableDate: the date from which the task may be performed; by default now.
  ///   - delay: how long from now the task may be performed, in place of a date.
  ///   - maxRetries: how often it is tried again when it fails; by default 10 times, so 11 attempts.
  ///   - usesBackoff: whether a retry waits for the queue's backoff, or is due at once; by default it
  ///     waits.
  ///   - priority: its rank among the tasks that are available; by default
  ///     ``TaskQueue/Priority/normal``.
  ///   - uniqueKey: a key that only one task may have; by default the payload's own
  ///     (``TaskPayload/uniqueKey``).
  ///   - policy: what to do if a task has the key already; by default ``UniquePolicy/keep``.
  ///   - options: everything else: a time limit, a date of expiry, tags.
  /// - Returns: the task; with ``UniquePolicy/keep``, the one that was there.
  /// - Throws: as
  ///   ``TaskQueue/enqueue(_:availableDate:delay:maxRetries:usesBackoff:priority:uniqueKey:onDuplicate:options:)``.
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
    try await queue.enqueue(
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

  /// Adds several tasks of one type to the queue that performs this one, in one step: all of them or,
  /// if it throws, none.
  ///
  /// - Parameters:
  ///   - payloads: what the handlers are given, a task each.
  ///   - options: what is chosen for all of them.
  ///   - uniqueKey: the key of each task, that only one task may have; where it returns `nil`, and by
  ///     default, the payload's own (``TaskPayload/uniqueKey``).
  /// - Returns: the tasks, in the order of the payloads.
  /// - Throws: as ``TaskQueue/enqueue(contentsOf:options:uniqueKey:)``.
  @discardableResult
  public func enqueue<Payload: TaskPayload>(
    contentsOf payloads: some Sequence<Payload>,
    options: TaskOptions = TaskOptions(),
    uniqueKey: (Payload) -> String? = { _ in nil }
  ) async throws -> [EnqueuedTask] {
    try await queue.enqueue(contentsOf: payloads, options: options, uniqueKey: uniqueKey)
  }

  /// Adds a task that has a name and any JSON to the queue that performs this one.
  ///
  /// - Parameters:
  ///   - name: the name under which its handler is found.
  ///   - payload: what the handler is given; by default `null`.
  ///   - uniqueKey: a key that only one task may have; by default none.
  ///   - options: what is chosen for the task.
  /// - Returns: the task; with ``UniquePolicy/keep``, the one that was there.
  /// - Throws: as ``TaskQueue/enqueue(name:_:uniqueKey:options:)``.
  @discardableResult
  public func enqueue(
    name: String,
    _ payload: JSONValue = .null,
    uniqueKey: String? = nil,
    options: TaskOptions = TaskOptions()
  ) async throws -> EnqueuedTask {
    try await queue.enqueue(name: name, payload, uniqueKey: uniqueKey, options: options)
  }
}
