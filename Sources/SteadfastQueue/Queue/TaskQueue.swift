import SteadfastRetry
import Synchronization

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

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
  public nonisolated let name: String
  /// How the queue performs its tasks.
  public nonisolated let configuration: TaskQueueConfiguration

  /// The error if the name or the configuration is invalid.
  private nonisolated let validity: Result<Void, TaskQueueError>

  // The actor isolates only what happens seldom. What happens for each task is not isolated to it,
  // which is faster: it takes a lock around the machine, and calls the store.
  nonisolated let store: any Persistence
  nonisolated let clock: any WallClock
  nonisolated let machine: Mutex<WorkMachine>
  nonisolated let judge: AttemptJudge
  /// The generator of the jitter of each verdict.
  nonisolated let jitter: Mutex<SplitMix64>
  nonisolated let statisticsBoard: Mutex<QueueStatistics.Tally>
  nonisolated let ids: Mutex<TaskIDGenerator>
  nonisolated let pruning: Mutex<PruningSchedule>
  nonisolated let dates = Mutex(DateWatch())
  nonisolated let handlers = HandlerTable()
  /// The names without a handler that were reported by a notice.
  nonisolated let notice = Mutex(UnhandledNotice())
  nonisolated let outcomes = OutcomeBoard()
  nonisolated let hub: EventHub
  nonisolated let changes = ChangesUnderWay()
  nonisolated let keyTurns = KeyTurns()
  /// Wakes idle workers.
  nonisolated let wake = WakeUp()
  /// Whether the current run, or the last one, is a pass, which ends when nothing is available.
  nonisolated let isPassing = Atomic(false)
  /// Wakes the Swift tasks that cut attempts short, one for each worker.
  nonisolated let interrupts: [WakeUp]
  /// The time on the clock since the queue was made.
  nonisolated let stopwatch: @Sendable () -> Duration
  /// Wakes the finisher, which stores the ends of attempts.
  nonisolated let settle = WakeUp()
  nonisolated let alarm = Alarm()
  /// Callers that have interrupted an attempt, and wait until it is cut short.
  nonisolated let interruption = Waiters<Void>()
  /// Callers that wait for the claim in flight.
  nonisolated let claimEnd = Waiters<Void>()
  /// Callers that pause the queue, and wait for the last attempts to begin.
  nonisolated let stepWhilePaused = Waiters<Void>()
  /// How long attempts may go on once the queue shuts down.
  nonisolated let shutDownLimit = ShutDownLimit()
  nonisolated let idleWatch = IdleWatch()
  /// Callers that wait for the run to end.
  nonisolated let runEnd = Waiters<Void>()

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
  /// Every other call opens the store itself. Use this one to get the errors at a time of your
  /// choosing.
  ///
  /// - Throws: a ``TaskQueueError`` if the name or the configuration makes no sense, or a handler
  ///   could not be registered; what keeps the store from being opened.
  public nonisolated func open() async throws {
    try validity.get()
    // Handlers that are under way go on, and so do the calls that they make.
    if handlers.hasRefusal, callingTask == nil, let refusal = handlers.refusal { throw refusal }
    try await store.open()
  }

  /// The events from now on, until the queue has been shut down and its run has ended.
  ///
  /// Each access begins a new sequence.
  public nonisolated var events: TaskEvents { hub.subscribe() }

  nonisolated var now: Date { clock.date.storable }

  private static func stopwatch<Clock: WallClock>(
    _ clock: Clock
  ) -> @Sendable () -> Duration {
    let start = clock.now
    return { start.duration(to: clock.now) }
  }
}
