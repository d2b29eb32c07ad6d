import Synchronization

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// A queue that performs tasks until they succeed or are given up, and forgets none.
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
/// A task is performed by the handler registered for its name. A handler that returns has
/// succeeded; one that throws has failed, and the task is tried again after a delay, up to its
/// number of retries. What is enqueued is stored before `enqueue` returns.
///
/// ## At least once
///
/// A task is gone only when its success is stored. If the process ends between the work and that
/// record, the task is performed again; ``TaskContext/id`` is the key by which the other side can
/// recognise the repetition. With ``TaskQueueConfiguration/maxConcurrentTasks`` of 1 and a store
/// that waits for a device, the next task may begin while the success of the last is being stored.
///
/// ## Order
///
/// Among the tasks that are available, a higher priority goes first, then the earlier available
/// date, then the order of enqueueing. A failed task gives way: its retry goes behind the available
/// tasks of its priority.
///
/// ## Life
///
/// The queue does nothing until ``run()`` or ``runAvailable()`` is called, and performs tasks as
/// children of that call: cancelling it cancels them. Dropping the last reference to the queue and
/// to the tasks it has returned frees the store, if nobody else holds it.
public actor TaskQueue {
  /// The queue's name, for people.
  public nonisolated let name: String
  /// How the queue performs its tasks.
  public nonisolated let configuration: TaskQueueConfiguration

  // The actor is the shell for what happens seldom. Whatever happens for each task takes the short
  // way, not isolated to it: a lock around the machine, and the store.
  nonisolated let store: any Persistence
  nonisolated let clock: any WallClock
  nonisolated let machine: Mutex<WorkMachine>
  nonisolated let judge: Mutex<AttemptJudge>
  nonisolated let ids: Mutex<TaskIDGenerator>
  nonisolated let pruning: Mutex<PruningSchedule>
  nonisolated let dates = Mutex(DateWatch())
  nonisolated let handlers = HandlerTable()
  nonisolated let outcomes = OutcomeBoard()
  nonisolated let hub: EventHub
  /// Wakes idle workers.
  nonisolated let wake = WakeUp()
  /// Wakes the finisher.
  nonisolated let settle = WakeUp()
  nonisolated let alarm = Alarm()
  /// Those who wait for the run to end.
  nonisolated let runEnd = Waiters<Void>()

  /// Makes a queue.
  ///
  /// Nothing is opened or performed yet.
  ///
  /// - Parameters:
  ///   - name: what to call it.
  ///   - persistence: where its tasks rest; by default in memory. A store serves one queue.
  ///   - configuration: how it performs them.
  ///   - clock: what it sleeps on and reads dates from. A test gives one that it moves by hand.
  public init(
    name: String = "default",
    persistence: some Persistence = InMemoryStore(),
    configuration: TaskQueueConfiguration = TaskQueueConfiguration(),
    clock: some WallClock = SystemClock()
  ) {
    self.name = name
    self.configuration = configuration
    self.clock = clock
    store = persistence
    machine = Mutex(WorkMachine(workers: max(1, configuration.maxConcurrentTasks)))
    judge = Mutex(AttemptJudge(configuration))
    ids = Mutex(TaskIDGenerator(configuration.randomness))
    pruning = Mutex(PruningSchedule(configuration))
    hub = EventHub(capacity: configuration.eventBufferSize)
  }

  /// Opens the store, if it is not open.
  ///
  /// Any other call does so by itself; this one is there to meet the errors at a time of your
  /// choosing.
  ///
  /// - Throws: a ``TaskQueueError`` if the configuration makes no sense, or what keeps the store
  ///   from being opened.
  public nonisolated func open() async throws {
    try configuration.validate()
    try await store.open()
  }

  /// What happens from now on.
  ///
  /// Each access begins a sequence of its own.
  public nonisolated var events: TaskEvents { hub.subscribe() }

  nonisolated var now: Date { clock.date.storable }

  // MARK: Handlers

  /// Names the closure that performs the tasks of a type, in place of any before.
  ///
  /// It may be registered before or after tasks of the type exist; until then they stay. The
  /// closure returns when the work is done, and throws when it failed:
  /// - An error is a failure, `CancellationError` too unless the run was cancelled: the task is
  ///   tried again after its backoff, and abandoned when its retries are used up.
  /// - A `RetryAwareError` whose `retryDecision` is `.stop` abandons the task, as
  ///   ``TaskAbandoned`` does; `.retry(after:)` sets the delay.
  /// - ``TaskSnoozed`` puts the task off without counting.
  ///
  /// It is called on the concurrent executor, and for several tasks at a time if the configuration
  /// allows. When the run is cancelled its task is cancelled; whatever it then throws, the task is
  /// put back unharmed.
  public func register<Payload: TaskPayload>(
    _ type: Payload.Type,
    perform: @escaping @Sendable (Payload, TaskContext) async throws -> Void
  ) async {
    handlers.register(type, perform: perform)
    machine.withLock { $0.unpark(type.taskName, type.formerTaskNames) }
    wake.fire()
  }

  /// Names a type whose values perform themselves.
  public func register<Payload: PerformableTask>(_ type: Payload.Type) async {
    await register(type) { payload, context in try await payload.perform(in: context) }
  }
}
