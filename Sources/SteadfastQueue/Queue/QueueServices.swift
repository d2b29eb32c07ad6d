import SteadfastRetry
import SystemFoundation

/// The services that all parts of a queue use.
///
/// This is a struct, so each part stores the services themselves. If the parts shared an object,
/// each use of a service would count references, which made an attempt in memory 10 % slower.
struct QueueServices: Sendable {
  let name: String
  let configuration: TaskQueueConfiguration
  let time: QueueTime
  let storage: QueueStore
  /// The outermost layer of the store.
  let store: any Persistence
  let observers: Observers
  let dispatch: Dispatcher
  let handlers = HandlerTable()
  let generators: Generators
  /// Decides what happens to a task after an attempt.
  let judge: AttemptJudge
  /// Decides whether to attempt tasks that were interrupted.
  let suspects: Suspects
  /// The rate limits; `nil` if there are none.
  let rateLimiting: RateLimiting?
  /// The last census of the store.
  let censuses: CensusCache
  /// Who this queue is, for other processes (``TaskClaim/holder``).
  let holder: String

  init(
    _ name: String,
    _ persistence: some Persistence,
    _ configuration: TaskQueueConfiguration,
    _ clock: some WallClock
  ) {
    let members = (persistence as? GroupStore)?.members
    let availability = members?.availability ?? StoreAvailability()
    let time = QueueTime(clock)
    let observers = Observers(
      eventCapacity: configuration.eventBufferSize,
      statistics: QueueStatistics.Tally(since: clock.date),
      availability
    )
    let storage = QueueStore(
      persistence,
      ofQueue: name,
      configuration,
      retryPolicy: StoreRetryPolicy(
        name,
        persistence,
        configuration,
        time,
        observers.events,
        availability
      )
    )
    self.name = name
    self.configuration = configuration
    self.time = time
    self.storage = storage
    store = storage.front
    censuses = CensusCache(time, availability)
    self.observers = observers
    dispatch = Dispatcher(name, time, storage, workers: configuration.workerCount, availability)
    generators = Generators(configuration.randomness)
    holder = TaskClaim.holder(ofQueue: name, programVersion: configuration.programVersion)
    judge = AttemptJudge(configuration, holder: persistence.sharing == nil ? "" : holder)
    suspects = members?.suspects ?? Suspects()
    rateLimiting = RateLimiting(configuration.rateLimits, hasOneClock: persistence.hasOneClock)
  }
}

/// A part of a queue, with one job.
protocol QueuePart: Sendable {
  var services: QueueServices { get }
}

// Without inlining, each call copies a whole value, such as the configuration, which made
// enqueueing into a store in memory 30 % slower.
extension QueuePart {
  @inline(__always) var name: String { services.name }
  @inline(__always) var configuration: TaskQueueConfiguration { services.configuration }
  @inline(__always) var time: QueueTime { services.time }
  @inline(__always) var storage: QueueStore { services.storage }
  @inline(__always) var store: any Persistence { services.store }
  @inline(__always) var observers: Observers { services.observers }
  @inline(__always) var dispatch: Dispatcher { services.dispatch }
  @inline(__always) var handlers: HandlerTable { services.handlers }
  @inline(__always) var generators: Generators { services.generators }
  @inline(__always) var judge: AttemptJudge { services.judge }
  @inline(__always) var rateLimiting: RateLimiting? { services.rateLimiting }
  @inline(__always) var now: Date { services.dispatch.now }

  /// Calls the body with the tasks that match a filter and exist now, one page at a time.
  ///
  /// Tasks that are added later are skipped, so the call ends even if tasks are added all the time.
  func forEachPage(
    of filter: TaskFilter,
    after id: TaskID?,
    _ body: ([TaskRecord]) async throws -> Void
  ) async throws {
    let own = generators.latestID(before: now)
    try await store.forEachPage(of: filter, after: id, tasksUpTo: own, body)
  }

  /// Returns the queue with a name in this queue's group; `nil` if it is not in this process.
  func queue(named name: String) -> QueueCore? { storage.group?.members.queue(named: name) }

  /// Returns the name of the queue to which a task belongs; `nil` for this queue.
  func otherQueue(of record: TaskRecord) -> String? {
    let owner = NamedStore.name(ofStoredName: record.queue)
    return owner == name ? nil : owner
  }
}

/// A queue's clock, with a stopwatch that starts when the queue is made.
struct QueueTime: Sendable {
  let clock: any WallClock
  /// Returns the time since the queue was made, by the clock's instants.
  let stopwatch: @Sendable () -> Duration
  /// The thread that waits for deadlines; `nil` if the clock is not the system's.
  let deadlineThread: DeadlineThread?

  init(_ clock: some WallClock) {
    self.clock = clock
    deadlineThread = clock is ContinuousClock ? .shared : nil
    // Most queues use a `ContinuousClock`, and read it twice for each attempt. So avoid generic
    // calls.
    if clock is ContinuousClock {
      let start = ContinuousClock.now
      stopwatch = { start.duration(to: .now) }
    } else {
      let start = clock.now
      stopwatch = { start.duration(to: clock.now) }
    }
  }

  /// Returns the stopwatch time at which a budget is used up.
  ///
  /// A negative budget counts as zero.
  func deadline(after budget: Duration) -> Duration {
    stopwatch() + min(max(budget, .zero), .longestStorable)
  }

  /// The executor for code that must meet a deadline even if handlers occupy all Swift threads.
  ///
  /// `nil` means that the caller's own executor suffices, because the clock is not the system's, or
  /// because time is virtual.
  var deadlineExecutor: (any TaskExecutor)? { RealWork.observer == nil ? deadlineThread : nil }

  /// Suspends for a delay.
  ///
  /// With the system's clock, the delay ends in time even if handlers occupy all Swift threads.
  /// - Throws: `CancellationError` as soon as the caller is cancelled.
  nonisolated(nonsending) func wait(for delay: Duration) async throws {
    guard let deadlineThread else { return try await clock.wait(for: delay) }
    try await deadlineThread.sleep(for: delay)
  }

  /// The current date, rounded and limited to what stores can keep.
  var now: Date { clock.date.storable }
}
