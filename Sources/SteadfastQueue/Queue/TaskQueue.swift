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
/// task has succeeded. If it throws, the attempt has failed, and the task is retried after a delay,
/// up to its maximum number of retries. A task is stored before `enqueue` returns, so no task is
/// lost.
///
/// ## At least once
///
/// A task is done only when its success is stored. If the process ends after the work and before
/// the success is stored, the task is performed again. Use ``TaskContext/id`` as an idempotency
/// key, so that the other side recognises the repetition. With a
/// ``TaskQueueConfiguration/maxConcurrentTasks`` of 1 and a store that waits for a device, the next
/// task may start while the success of the previous one is being stored.
///
/// ## Order
///
/// Among the available tasks, a higher priority goes first, then the earlier available date, then
/// the order of enqueueing. The retry of a failed task goes behind the available tasks of its
/// priority.
///
/// ## Life
///
/// The queue does nothing until ``run()`` or ``runAvailable()`` is called. It performs tasks as
/// children of that call, so cancelling the call cancels them. When the last reference to the
/// queue, and to the tasks that it has returned, is released, the queue releases the store.
public actor TaskQueue {
  /// The queue's name, which descriptions and error messages contain.
  public nonisolated var name: String { core.name }
  /// How the queue performs its tasks.
  public nonisolated var configuration: TaskQueueConfiguration { core.configuration }

  // Claims and attempts read the queue's state on every thread, so an actor can't isolate it. The
  // actor is the public interface. It isolates only calls that an application makes rarely: those
  // that register, pause and shut down.
  nonisolated let core: QueueCore

  /// Makes a queue.
  ///
  /// Nothing is opened or performed yet.
  ///
  /// - Parameters:
  ///   - name: the queue's name, which must not be empty.
  ///   - persistence: the store of its tasks; by default in memory. Only one queue can use a store,
  ///     unless the store can be shared.
  ///   - configuration: how it performs tasks.
  ///   - clock: the clock that it uses for dates and for waiting. A test can pass a clock that it
  ///     advances by hand.
  public init(
    name: String = "default",
    persistence: some Persistence = InMemoryStore(),
    configuration: TaskQueueConfiguration = TaskQueueConfiguration(),
    clock: some WallClock = ContinuousClock()
  ) {
    core = QueueCore(name, persistence, configuration, clock)
  }

  /// Opens the store, if it is not open, and reads its stored pause.
  ///
  /// Every other call also does this. Call this one to get the errors at a time of your choice.
  ///
  /// - Throws: a ``TaskQueueError`` if the name or the configuration is invalid, or a handler could
  ///   not be registered; the error that prevents the store from being opened.
  public nonisolated func open() async throws {
    _ = try await core.opened
  }

  /// The events from now on, until the queue has been shut down and its run has ended.
  ///
  /// Each access starts a new sequence.
  public nonisolated var events: TaskEvents { core.observers.events.subscribe() }
}
