public import SteadfastRetry

/// How a queue performs its tasks.
public struct TaskQueueConfiguration: Sendable {
  /// The maximum number of tasks that are performed at the same time, from 1 to 10,000.
  ///
  /// By default 1, so tasks are performed one at a time, in order. A queue that runs uses about 9
  /// KB of memory for each of these tasks, even while it is idle.
  public var maxConcurrentTasks: Int
  /// The delay before a retry, for tasks that use backoff.
  ///
  /// By default 10 s × 2 to the power of the number of retries so far, up to 6 hours, ± 10 %.
  public var backoff: Backoff
  /// Whether every task retries at once, even if its options ask for backoff; by default `false`.
  ///
  /// Only a delay that a handler's error sets still applies. A task that is added with this setting
  /// keeps retrying at once, even if a later configuration does not have the setting.
  public var prohibitsBackoff: Bool
  /// The options of a new task that are set neither by the call nor by the payload's type.
  public var taskDefaults: TaskOptions
  /// The limits on how many tasks may start within an interval of time; by default none.
  ///
  /// If several limits match a task, all of them apply. <doc:RateLimits> explains how tasks are
  /// counted.
  public var rateLimits: [RateLimit]
  /// Code that runs around each call that adds tasks, and around each attempt; by default none.
  ///
  /// The first one is the outermost. The occurrences of schedules and the tasks of
  /// ``TaskQueue/insertStatement(for:uniqueKey:options:)`` are added without it.
  public var middleware: [any TaskMiddleware]
  /// How often in a row a task may be interrupted and still be tried again; by default 5 times.
  ///
  /// An attempt is interrupted if the process ends during the attempt, because the attempt crashes
  /// the process or for another reason. Closing the store during an attempt also interrupts it. A
  /// task that is interrupted more often is abandoned, so that it can't crash the process forever.
  ///
  /// An attempt that fails resets the number to zero. An attempt that is released without a
  /// failure, for example by a shutdown, does not change the number. If the queue claims tasks
  /// before it can start them (``Persistence/claimBatch``), a crash also counts for tasks that were
  /// about to start, usually once for each. <doc:RetriesOfTasks> explains how a queue protects such
  /// tasks.
  public var maxInterruptions: RetryLimit
  /// The maximum size of a task's memory, in bytes of its names and values; by default 1 MiB.
  ///
  /// A step that would exceed the size throws a ``StepError``. A single value has at most 65,536
  /// bytes.
  public var maxMemorySize: Int
  /// Whether a failure counts as the first one if the attempt has made progress; by default
  /// `false`.
  ///
  /// An attempt has made progress if it has stored the value of a step, a sleep, a completion or a
  /// checkpoint. With this setting, a long transfer over an unreliable connection is not abandoned
  /// as long as each attempt gets further.
  public var progressRenewsRetries: Bool
  /// How long succeeded tasks are retained.
  ///
  /// By default, they are not retained.
  public var succeededRetention: Retention
  /// How long abandoned tasks are retained.
  ///
  /// By default, the last 1,000 are retained, for up to 30 days.
  public var abandonedRetention: Retention
  /// The maximum number of events that an observer may fall behind before it misses some; at least
  /// 1.
  ///
  /// By default 1,024.
  public var eventBufferSize: Int
  /// How long cancelled tasks are retained.
  ///
  /// By default, they are not retained.
  public var cancelledRetention: Retention
  /// Returns the text of an error.
  ///
  /// The text is stored with the task, and is part of events and of the task's outcome. By default,
  /// it is the error's `description`. If that may contain data that must not be stored, set another
  /// closure. The text is shortened to 4,096 bytes, and each NUL in it is replaced by U+FFFD.
  public var errorText: @Sendable (any Error) -> String
  /// How long a call from outside of a run waits for a store that is unavailable; by default 30 s.
  ///
  /// Then the call throws the store's error, which is transient (``PersistenceError``): the call
  /// has stored nothing. If the error of ``TaskQueue/open()`` shows that waiting will seldom help,
  /// as for a wrong host, the call throws it at once. A run, and the calls of its handlers, wait
  /// without a limit.
  public var storeTimeout: Duration
  /// Called with a line of text if tasks can't be performed while the queue runs, or if the queue
  /// has waited 5 s for its store.
  ///
  /// By default, the closure writes the line to standard error. If it is `nil`, no line is written.
  ///
  /// - There is a line for each name that has waiting tasks and no handler, and for each condition
  ///   for which tasks wait and that was never set. When the first run starts, there is also a line
  ///   for each rate limit whose name has no handler. While ``TaskQueue/events`` are observed, the
  ///   event ``TaskEvent/unhandled(_:reason:)`` is posted for each task instead.
  /// - When the first run starts, there is a line if all tasks in the store belong to queues with
  ///   other names.
  /// - A line about the store names the queue, the store and the reason. There is one for each
  ///   outage, and one when the store answers again.
  public var notice: (@Sendable (String) -> Void)?
  /// The version of the program, which other processes see with the tasks that this one performs
  /// (``TaskClaim/holder``); by default empty.
  public var programVersion: String
  /// The source of random numbers for jitter and IDs; by default the system's.
  ///
  /// A seed makes jitter and IDs reproducible.
  public var randomness: Randomness

  /// Makes a configuration, for which every argument has a default.
  public init(
    maxConcurrentTasks: Int = 1,
    backoff: Backoff = TaskQueueConfiguration.defaultBackoff,
    prohibitsBackoff: Bool = false,
    taskDefaults: TaskOptions = TaskOptions(),
    rateLimits: [RateLimit] = [],
    middleware: [any TaskMiddleware] = [],
    maxInterruptions: RetryLimit = 5,
    maxMemorySize: Int = 1 << 20,
    progressRenewsRetries: Bool = false,
    succeededRetention: Retention = .none,
    abandonedRetention: Retention = Retention(maxCount: 1000, maxAge: .seconds(30 * 86_400)),
    cancelledRetention: Retention = .none,
    eventBufferSize: Int = 1024,
    storeTimeout: Duration = .seconds(30),
    errorText: @escaping @Sendable (any Error) -> String = { String(describing: $0) },
    notice: (@Sendable (String) -> Void)? = TaskQueueConfiguration.writeToStandardError,
    programVersion: String = "",
    randomness: Randomness = .system
  ) {
    self.maxConcurrentTasks = maxConcurrentTasks
    self.backoff = backoff
    self.prohibitsBackoff = prohibitsBackoff
    self.taskDefaults = taskDefaults
    self.rateLimits = rateLimits
    self.middleware = middleware
    self.maxInterruptions = maxInterruptions
    self.maxMemorySize = maxMemorySize
    self.progressRenewsRetries = progressRenewsRetries
    self.succeededRetention = succeededRetention
    self.abandonedRetention = abandonedRetention
    self.cancelledRetention = cancelledRetention
    self.eventBufferSize = eventBufferSize
    self.storeTimeout = storeTimeout
    self.errorText = errorText
    self.notice = notice
    self.programVersion = programVersion
    self.randomness = randomness
  }

  /// 10 s × 2 to the power of the number of retries so far, up to 6 hours, ± 10 %.
  public static let defaultBackoff = Backoff.exponential(from: .seconds(10), multiplier: 2)
    .jittered(.proportional(0.1)).capped(at: .seconds(6 * 3600))

  /// Writes a line to the process's standard error, with this package's name as a prefix.
  public static let writeToStandardError: @Sendable (String) -> Void = StandardError.write

  private static let maxWorkers = 10_000

  /// The number of tasks that are performed at the same time, even if the setting is invalid.
  var workerCount: Int { min(max(1, maxConcurrentTasks), Self.maxWorkers) }

  /// Throws an error that describes the first setting that is invalid.
  func validate() throws(TaskQueueError) {
    guard maxConcurrentTasks == workerCount else {
      throw TaskQueueError(
        .invalidArgument,
        "maxConcurrentTasks is \(maxConcurrentTasks); give 1 to \(Self.maxWorkers)"
      )
    }
    guard storeTimeout >= .zero else {
      throw TaskQueueError(.invalidArgument, "storeTimeout is \(storeTimeout); give zero or more")
    }
    guard maxMemorySize >= 0 else {
      throw TaskQueueError(.invalidArgument, "maxMemorySize is \(maxMemorySize); give 0 or more")
    }
    for (name, count) in [
      ("succeededRetention", succeededRetention.maxCount),
      ("abandonedRetention", abandonedRetention.maxCount),
      ("cancelledRetention", cancelledRetention.maxCount),
    ] {
      guard let count, count < 0 else { continue }
      throw TaskQueueError(.invalidArgument, "\(name) has a maxCount of \(count); give 0 or more")
    }
    try taskDefaults.check(path: "taskDefaults.")
    for limit in rateLimits { try limit.validate() }
    try TaskQueueError.check(maxInterruptions, "maxInterruptions")
    for (name, age) in [
      ("succeededRetention", succeededRetention.maxAge),
      ("abandonedRetention", abandonedRetention.maxAge),
      ("cancelledRetention", cancelledRetention.maxAge),
    ] {
      guard let age, age < .zero else { continue }
      throw TaskQueueError(.invalidArgument, "\(name) has a maxAge of \(age); give 0 or more")
    }
    guard eventBufferSize >= 1 else {
      throw TaskQueueError(
        .invalidArgument,
        "eventBufferSize is \(eventBufferSize); give at least 1"
      )
    }
  }
}

/// How long ended tasks are retained, with their ID, unique key and outcome.
///
/// A retained task can be looked up, and its outcome is available to callers that ask later. With
/// both a count and an age, a task is removed as soon as it exceeds either of them. A task that
/// prevents duplicates after its end (``TaskOptions/uniqueFor``) is retained at least that long.
///
/// Tasks are removed when the queue starts to run, and whenever a few hundred more tasks have
/// ended. Until then, a store may have more tasks than the count, and tasks that are older than the
/// age.
public struct Retention: Sendable, Hashable {
  /// The maximum number of tasks that are retained, the latest ones; `nil` for no limit.
  public var maxCount: Int?
  /// The maximum age of tasks that are retained; `nil` for no limit.
  ///
  /// The age is measured by the clock's date. If the clock is wrongly set forward, tasks are
  /// removed, and setting the clock back does not restore them.
  public var maxAge: Duration?

  /// Makes a policy from a count, an age, or both; with neither, ended tasks are retained forever.
  public init(maxCount: Int? = nil, maxAge: Duration? = nil) {
    self.maxCount = maxCount
    self.maxAge = maxAge
  }

  /// Tasks are removed as soon as they end.
  public static let none = Retention(maxCount: 0)
  /// Tasks are retained until the queue's store is removed.
  public static let forever = Retention()

  /// Whether any tasks are retained when they end.
  var retains: Bool { maxCount.map { $0 > 0 } ?? true }
}
