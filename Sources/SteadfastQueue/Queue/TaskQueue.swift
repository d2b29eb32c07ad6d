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

  // The actor isolates the calls that are made seldom, such as those that register, pause or shut
  // down. What happens for each task takes a short way past the actor, which is faster: a lock
  // around the machine, and a call of the store.
  nonisolated let backing: QueueStore
  nonisolated let time: QueueTime
  nonisolated let latestDate = LatestDate()
  nonisolated let handlers = HandlerTable()
  /// What runs, what it holds, and what each worker does next.
  nonisolated let machine: Mutex<WorkMachine>
  /// Decides how attempts settle their tasks.
  nonisolated let judge: AttemptJudge
  nonisolated let generators: Generators
  nonisolated let upkeep: Mutex<Upkeep>
  /// The rate limits; `nil` if there are none.
  nonisolated let rateLimiting: RateLimiting?
  /// Decides about tasks that were interrupted.
  nonisolated let suspects: Suspects
  /// Everybody who learns what becomes of tasks.
  nonisolated let observers: Observers
  /// Everybody who waits for a step of the queue.
  nonisolated let signals: Signals

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
    self.name = name
    self.configuration = configuration
    time = QueueTime(clock)
    machine = Mutex(WorkMachine(workers: configuration.workerCount))
    judge = AttemptJudge(configuration)
    generators = Generators(configuration.randomness)
    upkeep = Mutex(Upkeep(configuration))
    rateLimiting = RateLimiting(
      configuration.rateLimits,
      hasOneClock: persistence.hasOneClock
    )
    let members = (persistence as? GroupStore)?.members
    suspects = members?.suspects ?? Suspects()
    let absence = members?.absence ?? StoreAvailability()
    observers = Observers(
      eventCapacity: configuration.eventBufferSize,
      statistics: QueueStatistics.Tally(since: clock.date),
      absence
    )
    signals = Signals(workers: configuration.workerCount, absence)
    backing = QueueStore(
      persistence,
      ofQueue: name,
      configuration,
      patience: StoreRetryPolicy(configuration, time, observers.events, absence)
    )
  }

  /// Opens the store, if it is not open, and reads what it says is paused.
  ///
  /// Every other call does so itself. Use this one to get the errors at a time of your choosing.
  ///
  /// - Throws: a ``TaskQueueError`` if the name or the configuration makes no sense, or a handler
  ///   could not be registered; what keeps the store from being opened.
  public nonisolated func open() async throws {
    try checkCanOpen()
    try await store.open()
    if !signals.hasReadPause.load(ordering: .acquiring) {
      try await readStoredPause(again: false)
    }
  }

  /// Checks that the store may be opened.
  ///
  /// - Throws: A ``TaskQueueError`` that says what is wrong with the queue.
  nonisolated func checkCanOpen() throws {
    try backing.checkCanOpen()
    // Handlers that are under way go on, and so do the calls that they make.
    if handlers.hasRefusal, callingTask == nil, let refusal = handlers.refusal { throw refusal }
  }

  /// The events from now on, until the queue has been shut down and its run has ended.
  ///
  /// Each access begins a new sequence.
  public nonisolated var events: TaskEvents { observers.events.subscribe() }

  nonisolated var store: any Persistence { backing.front }

  nonisolated var now: Date {
    let now = time.now
    latestDate.note(now)
    return now
  }
}

/// The store of a queue, and the layers that the queue may have put in front of it.
struct QueueStore: Sendable {
  /// What takes the queue's calls.
  let front: any Persistence
  /// The queue's part of the store, if the queue belongs to a group.
  let group: GroupStore?
  /// What makes calls again, if the store's errors may be transient.
  let patientStore: RetryingStore?
  /// The error if the queue's name, its configuration or the store's sharing is invalid.
  private let validity: Result<Void, TaskQueueError>

  /// Takes the store that the application has given.
  init(
    _ persistence: some Persistence,
    ofQueue name: String,
    _ configuration: TaskQueueConfiguration,
    patience: @autoclosure () -> StoreRetryPolicy
  ) {
    validity = Result { () throws(TaskQueueError) in
      if name.isEmpty {
        throw TaskQueueError(.invalidArgument, "the queue's name is empty; give it a name")
      }
      try configuration.validate()
      try persistence.sharing?.validate()
    }
    group = persistence as? GroupStore
    patientStore =
      persistence.mayFailTransiently ? RetryingStore(persistence, patience()) : nil
    front = patientStore ?? persistence
  }

  /// Throws what keeps the queue from opening its store.
  func checkCanOpen() throws(TaskQueueError) { try validity.get() }
}

/// A queue's clock, and the time on it since the queue was made.
struct QueueTime: Sendable {
  let clock: any WallClock
  /// The time since the queue was made, as the clock measures durations.
  let stopwatch: @Sendable () -> Duration
  /// The thread that keeps deadlines; `nil` on a clock that is not the system's.
  let deadlineThread: DeadlineThread?

  init(_ clock: some WallClock) {
    self.clock = clock
    deadlineThread = clock is ContinuousClock ? .shared : nil
    // Most queues have this clock, and read it twice for each attempt: without a generic call.
    if clock is ContinuousClock {
      let start = ContinuousClock.now
      stopwatch = { start.duration(to: .now) }
    } else {
      let start = clock.now
      stopwatch = { start.duration(to: clock.now) }
    }
  }

  /// Returns when a budget is used up, by the stopwatch; one below zero is so at once.
  func deadline(after budget: Duration) -> Duration {
    stopwatch() + min(max(budget, .zero), .longestStorable)
  }

  /// The executor of code that keeps a deadline while handlers may occupy all of Swift's threads.
  ///
  /// It is `nil` where the caller's own executor does: on another clock, and in virtual time.
  var deadlineExecutor: (any TaskExecutor)? { RealWork.observer == nil ? deadlineThread : nil }

  /// Suspends for the delay; on the system's clock, busy handlers do not prolong it.
  /// - Throws: `CancellationError` as soon as the task is cancelled.
  nonisolated(nonsending) func wait(for delay: Duration) async throws {
    guard let deadlineThread else { return try await clock.wait(for: delay) }
    try await deadlineThread.sleep(for: delay)
  }

  /// The date, as stores keep dates.
  var now: Date { clock.date.storable }
}
