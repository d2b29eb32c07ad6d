import SteadfastRetry
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

  /// Whether the configuration makes sense.
  private nonisolated let validity: Result<Void, TaskQueueError>

  // The actor is the shell for what happens seldom. Whatever happens for each task takes the short
  // way, not isolated to it: a lock around the machine, and the store.
  nonisolated let store: any Persistence
  nonisolated let clock: any WallClock
  nonisolated let machine: Mutex<WorkMachine>
  nonisolated let judge: AttemptJudge
  /// Where the jitter of each verdict comes from.
  nonisolated let jitter: Mutex<SplitMix64>
  nonisolated let statisticsBoard: Mutex<QueueStatistics.Tally>
  nonisolated let ids: Mutex<TaskIDGenerator>
  nonisolated let pruning: Mutex<PruningSchedule>
  nonisolated let dates = Mutex(DateWatch())
  nonisolated let handlers = HandlerTable()
  /// Which tasks without a handler people were told of.
  nonisolated let notice = Mutex(UnhandledNotice())
  nonisolated let outcomes = OutcomeBoard()
  nonisolated let hub: EventHub
  nonisolated let changes = ChangesUnderWay()
  nonisolated let keyTurns = KeyTurns()
  /// Wakes idle workers.
  nonisolated let wake = WakeUp()
  /// Whether the present run, or the last one, performs what is available and then ends.
  nonisolated let isPassing = Atomic(false)
  /// Wakes those who cut attempts short, one for each worker.
  nonisolated let interrupts: [WakeUp]
  /// The time that has passed on the clock.
  nonisolated let stopwatch: @Sendable () -> Duration
  /// Wakes the finisher.
  nonisolated let settle = WakeUp()
  nonisolated let alarm = Alarm()
  /// Those who wait until an attempt is cut short that they have asked to be.
  nonisolated let interruption = Waiters<Void>()
  /// Those who wait for the claim in flight.
  nonisolated let claimEnd = Waiters<Void>()
  /// Those who pause the queue, and wait for the last attempts to begin.
  nonisolated let stepWhilePaused = Waiters<Void>()
  /// How long attempts may go on once the queue shuts down.
  nonisolated let shutDownLimit = ShutDownLimit()
  nonisolated let idleWatch = IdleWatch()
  /// Those who wait for the run to end.
  nonisolated let runEnd = Waiters<Void>()

  /// Makes a queue.
  ///
  /// Nothing is opened or performed yet.
  ///
  /// - Parameters:
  ///   - name: what to call it; not empty.
  ///   - persistence: where its tasks rest; by default in memory. A store serves one queue, unless it
  ///     can be shared.
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
    let sharing = persistence.sharing
    validity = Result { () throws(TaskQueueError) in
      if name.isEmpty {
        throw TaskQueueError(.invalidArgument, "the queue's name is empty; give it a name")
      }
      try configuration.validate()
      try sharing?.validate()
    }
    store = persistence
    machine = Mutex(WorkMachine(workers: configuration.workerCount))
    judge = AttemptJudge(configuration)
    jitter = Mutex(configuration.randomness.makeGenerator())
    statisticsBoard = Mutex(QueueStatistics.Tally(since: clock.date))
    stopwatch = Self.stopwatch(clock)
    interrupts = (0..<configuration.workerCount).map { _ in WakeUp() }
    ids = Mutex(TaskIDGenerator(configuration.randomness))
    pruning = Mutex(PruningSchedule(configuration))
    hub = EventHub(capacity: configuration.eventBufferSize)
  }

  /// Opens the store, if it is not open.
  ///
  /// Any other call does so by itself; this one is there to meet the errors at a time of your
  /// choosing.
  ///
  /// - Throws: a ``TaskQueueError`` if the name or the configuration makes no sense, or a handler
  ///   could not be registered; what keeps the store from being opened.
  public nonisolated func open() async throws {
    try validity.get()
    // Handlers that are performed go on, and so do their calls.
    if handlers.hasRefusal, callingTask == nil, let refusal = handlers.refusal { throw refusal }
    try await store.open()
  }

  /// What happens from now on, until the queue has been shut down and its run has ended.
  ///
  /// Each access begins a sequence of its own.
  public nonisolated var events: TaskEvents { hub.subscribe() }

  nonisolated var now: Date { clock.date.storable }

  private static func stopwatch<Clock: WallClock>(
    _ clock: Clock
  ) -> @Sendable () -> Duration {
    let start = clock.now
    return { start.duration(to: clock.now) }
  }
}
