import SteadfastRetry

/// A queue that stores tasks, and performs each of them until it succeeds or is abandoned.
///
/// ```swift
/// struct PostComment: TaskPayload { var text: String }
///
/// let queue = TaskQueue(persistence: .jsonFile(at: url))
/// await queue.register(PostComment.self) { comment, context in
///   try await api.post(comment.text, idempotencyKey: context.id.description)
/// }
/// try await queue.enqueue(PostComment(text: "so important"))
/// try await queue.run()
/// ```
///
/// The handler that is registered for a task's name performs the task. If the handler returns, the
/// task has succeeded. If the handler throws, the attempt has failed, and the task is retried after
/// a delay, up to its maximum number of retries. A task is stored before `enqueue` returns, so it
/// is not lost if the process ends.
///
/// ## At least once
///
/// A task is done only when its success is stored. If the process ends after the work and before
/// the success is stored, the task is performed again. Pass ``TaskContext/id`` to a server as an
/// idempotency key, so that the server recognises the repetition.
///
/// The next task may start while the success of the previous one is being stored, even if
/// ``TaskQueueConfiguration/maxConcurrentTasks`` is 1.
///
/// ## Order
///
/// Among the available tasks, the one with the highest priority is performed first; then the one
/// with the earliest available date; then the one that was enqueued first. The retry of a failed
/// task goes behind the available tasks with the same priority.
///
/// ## Life
///
/// The queue does nothing until ``run()`` or ``runAvailable()`` is called. It performs tasks in
/// child tasks of that call, so cancelling the call cancels them. The queue releases the store when
/// the last reference to the queue, or to an ``EnqueuedTask`` that it has returned, is released.
public actor TaskQueue {
  /// The queue's name: the queue has the tasks of the store that belong to this name.
  public nonisolated var name: String { core.name }
  /// How the queue performs its tasks.
  public nonisolated var configuration: TaskQueueConfiguration { core.configuration }

  // Claims and attempts use the queue's state on every thread, so this actor does not isolate that
  // state. The actor isolates only calls that an application makes rarely: those that register
  // handlers, pause the queue and shut it down.
  nonisolated let core: QueueCore

  /// Makes a queue, but does not open its store yet.
  ///
  /// - Parameters:
  ///   - name: the queue's name, under which its tasks are stored: 1 to 255 bytes of UTF-8 without
  ///     control characters. A queue performs, counts and prunes only the tasks of its own name.
  ///   - persistence: the store of the queue's tasks; by default in memory. Only one queue can use
  ///     a store, unless the store can be shared.
  ///   - configuration: how the queue performs tasks.
  ///   - clock: the clock for dates and for waiting. A test can pass a clock that it advances by
  ///     hand.
  public init(
    name: String = "default",
    persistence: some Persistence = InMemoryStore(),
    configuration: TaskQueueConfiguration = TaskQueueConfiguration(),
    clock: some WallClock = ContinuousClock()
  ) {
    core = QueueCore(name, persistence, configuration, clock)
  }

  /// Opens the store, if it is not open yet.
  ///
  /// Each method that needs the store also opens it. Call this method to get the errors at a time
  /// of your choice. If the store is unavailable, the call waits for it, for up to
  /// ``TaskQueueConfiguration/storeTimeout``.
  ///
  /// - Throws: a ``TaskQueueError`` if the name or the configuration is invalid, or if a handler
  ///   could not be registered; the error that prevents the store from being opened, at once if
  ///   waiting would seldom help, as for a wrong host or a wrong password.
  public nonisolated func open() async throws {
    _ = try await core.opened
  }

  /// A new sequence of the queue's events from now on.
  ///
  /// The sequence ends when the queue has been shut down and its run has ended.
  public nonisolated var events: TaskEvents { core.observers.events.subscribe() }
}
