import SteadfastRetry

/// A queue that performs tasks until they succeed or are abandoned, and loses none.
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
/// task has succeeded. If it throws, the attempt has failed, and the task is tried again after a
/// delay, up to its number of retries. A task is stored before `enqueue` returns.
///
/// ## At least once
///
/// A task is done only when its success is stored. If the process ends after the work and before
/// the success is stored, the task is performed again; ``TaskContext/id`` is the key by which the
/// other side can recognise the repetition. With ``TaskQueueConfiguration/maxConcurrentTasks`` of 1
/// and a store that waits for a device, the next task may begin while the success of the previous
/// one is being stored.
///
/// ## Order
///
/// Among the available tasks, a higher priority goes first, then the earlier available date, then
/// the order of enqueueing. A failed task gives way: its retry goes behind the available tasks of
/// its priority.
///
/// ## Life
///
/// The queue does nothing until ``run()`` or ``runAvailable()`` is called, and performs tasks as
/// children of that call: cancelling it cancels them. When the last reference to the queue, and to
/// the tasks that it has returned, is dropped, the store is freed unless something else holds it.
public actor TaskQueue {
  /// The queue's name, shown in descriptions and error messages.
  public nonisolated var name: String { core.name }
  /// How the queue performs its tasks.
  public nonisolated var configuration: TaskQueueConfiguration { core.configuration }

  // What claims and attempts read, on every thread, can't be isolated by an actor. So the actor is
  // the public face, and isolates the calls that an application makes seldom: those that register,
  // pause and shut down.
  nonisolated let core: QueueCore

  /// Makes a queue.
  ///
  /// Nothing is opened or performed yet.
  ///
  /// - Parameters:
  ///   - name: the queue's name; not empty.
  ///   - persistence: the store of its tasks; by default in memory. A store serves one queue,
  ///     unless it can be shared.
  ///   - configuration: how it performs tasks.
  ///   - clock: the clock that it sleeps on and reads dates from. A test gives one that it moves by
  ///     hand.
  public init(
    name: String = "default",
    persistence: some Persistence = InMemoryStore(),
    configuration: TaskQueueConfiguration = TaskQueueConfiguration(),
    clock: some WallClock = ContinuousClock()
  ) {
    core = QueueCore(name, persistence, configuration, clock)
  }

  /// Opens the store, if it is not open, and reads what it says is paused.
  ///
  /// Every other call does so itself. Use this one to get the errors at a time of your choosing.
  ///
  /// - Throws: a ``TaskQueueError`` if the name or the configuration makes no sense, or a handler
  ///   could not be registered; what keeps the store from being opened.
  public nonisolated func open() async throws {
    _ = try await core.opened
  }

  /// The events from now on, until the queue has been shut down and its run has ended.
  ///
  /// Each access begins a new sequence.
  public nonisolated var events: TaskEvents { core.observers.events.subscribe() }
}
