public import SteadfastRetry

/// How a queue performs its tasks.
public struct TaskQueueConfiguration: Sendable {
  /// How many tasks are performed at the same time; from 1 to 10,000.
  ///
  /// By default 1: in order, one at a time. For each of them the queue takes about 9 KB while it
  /// runs, whether it performs a task or is idle.
  public var maxConcurrentTasks: Int
  /// The delay before a retry, for tasks that use backoff.
  ///
  /// By default 10 s × 2 to the number of retries so far, up to 6 hours, ± 10 %.
  public var backoff: Backoff
  /// Whether every task retries at once, whatever was chosen for it; by default `false`.
  ///
  /// Only a delay that a handler's error sets still applies.
  ///
  /// Tasks that are added under this setting retry at once under a later configuration, too.
  public var prohibitsBackoff: Bool
  /// The options of a new task where neither the call nor the payload's type says otherwise.
  public var taskDefaults: TaskOptions
  /// How many tasks may begin within intervals of time; by default as many as can.
  ///
  /// Several limits for the same tasks all hold. <doc:RateLimits> says how they are counted.
  public var rateLimits: [RateLimit]
  /// How often a task may be interrupted and still be tried again.
  ///
  /// An attempt is interrupted when it crashes its process, or is under way when the process is
  /// killed. A store that is closed during an attempt interrupts it, too. With a store of which a
  /// queue claims ahead (``Persistence/claimBatch``), a crash also counts for the tasks that were
  /// about to begin, as a rule once for each. By default 5 times; then the task is abandoned, so
  /// that it can't crash the process forever. <doc:RetriesOfTasks> says how a queue protects the
  /// tasks beside it. An attempt that fails sets the number back to zero.
  /// An attempt that is released unharmed, by a shutdown for example, leaves the number as it is.
  public var maxInterruptions: RetryLimit
  /// How much a task may remember: the bytes of its names and values; by default 1 MiB.
  ///
  /// A step beyond it throws a ``StepError``. One value has at most 65,536 bytes.
  public var maxMemorySize: Int
  /// Whether a failure counts as the first one if the attempt has got further; by default `false`.
  ///
  /// An attempt has got further if it has stored the value of a step, a sleep, a completion or a
  /// checkpoint. So a long transfer over a bad line is not abandoned while it goes on.
  public var progressRenewsRetries: Bool
  /// How long succeeded tasks are retained.
  ///
  /// By default not at all.
  public var succeededRetention: Retention
  /// How long abandoned tasks are retained.
  ///
  /// By default the last 1,000, up to 30 days.
  public var abandonedRetention: Retention
  /// How many events an observer may fall behind before it misses some; at least 1.
  ///
  /// By default 1,024.
  public var eventBufferSize: Int
  /// How long cancelled tasks are retained.
  ///
  /// By default not at all.
  public var cancelledRetention: Retention
  /// The text of an error, which the task stores, and which events and the task's outcome contain.
  ///
  /// By default it is the error's `description`. If that may contain what must not be stored, give
  /// another closure. The text is shortened to 4,096 bytes, and U+FFFD stands for each NUL in it.
  public var errorText: @Sendable (any Error) -> String
  /// Called when tasks wait while the queue runs, and no handler is registered for their name, or
  /// the queue was told nothing about one of their conditions; and for a rate limit of a name
  /// without a handler, when the first run begins.
  ///
  /// By default it writes a line to standard error; with `nil` there is no notice. It is called
  /// once for each name and each condition, with a text for people. While ``TaskQueue/events`` are
  /// observed, it is not called: then the event ``TaskEvent/unhandled(_:reason:)`` is posted for
  /// each task.
  public var unhandledNotice: (@Sendable (String) -> Void)?
  /// The source of jitter and IDs.
  ///
  /// By default the system; a seed makes them repeatable.
  public var randomness: Randomness

  /// Makes a configuration; every argument has a default.
  public init(
    maxConcurrentTasks: Int = 1,
    backoff: Backoff = TaskQueueConfiguration.defaultBackoff,
    prohibitsBackoff: Bool = false,
    taskDefaults: TaskOptions = TaskOptions(),
    rateLimits: [RateLimit] = [],
    maxInterruptions: RetryLimit = 5,
    maxMemorySize: Int = 1 << 20,
    progressRenewsRetries: Bool = false,
    succeededRetention: Retention = .none,
    abandonedRetention: Retention = Retention(maxCount: 1000, maxAge: .seconds(30 * 86_400)),
    cancelledRetention: Retention = .none,
    eventBufferSize: Int = 1024,
    errorText: @escaping @Sendable (any Error) -> String = { String(describing: $0) },
    unhandledNotice: (@Sendable (String) -> Void)? = TaskQueueConfiguration.writeToStandardError,
    randomness: Randomness = .system
  ) {
    self.maxConcurrentTasks = maxConcurrentTasks
    self.backoff = backoff
    self.prohibitsBackoff = prohibitsBackoff
    self.taskDefaults = taskDefaults
    self.rateLimits = rateLimits
    self.maxInterruptions = maxInterruptions
    self.maxMemorySize = maxMemorySize
    self.progressRenewsRetries = progressRenewsRetries
    self.succeededRetention = succeededRetention
    self.abandonedRetention = abandonedRetention
    self.cancelledRetention = cancelledRetention
    self.eventBufferSize = eventBufferSize
    self.errorText = errorText
    self.unhandledNotice = unhandledNotice
    self.randomness = randomness
  }

  /// 10 s × 2 to the number of retries so far, up to 6 hours, ± 10 %.
  public static let defaultBackoff = Backoff.exponential(from: .seconds(10), multiplier: 2)
    .jittered(.proportional(0.1)).capped(at: .seconds(6 * 3600))

  /// Writes a line to the process's standard error, after the name of this package.
  public static let writeToStandardError: @Sendable (String) -> Void = StandardError.write

  /// The most workers: more have no use, and take memory for nothing.
  private static let mostWorkers = 10_000

  /// The number of workers, within its limits even if the setting makes no sense.
  var workerCount: Int { min(max(1, maxConcurrentTasks), Self.mostWorkers) }

  /// Throws if one of the numbers makes no sense.
  func validate() throws(TaskQueueError) {
    guard maxConcurrentTasks == workerCount else {
      throw TaskQueueError(
        .invalidArgument,
        "maxConcurrentTasks is \(maxConcurrentTasks); give 1 to \(Self.mostWorkers)"
      )
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
/// A retained task can be looked up, and gives its outcome to callers that ask late. With both a
/// count and an age, a task is removed as soon as one of them says so. One that stands for others
/// (``TaskOptions/uniqueFor``) stays for its time. Tasks are removed when the queue begins to run,
/// and after every few hundred ended tasks that are retained. So a store may at times hold a few
/// more tasks than the count, and tasks that are older than the age.
public struct Retention: Sendable, Hashable {
  /// How many tasks are retained, the latest ones; `nil` for any number.
  public var maxCount: Int?
  /// The age up to which tasks are retained; `nil` for any age.
  ///
  /// The clock's date decides. If it is wrongly set forward, tasks are removed, and setting it back
  /// does not bring them back.
  public var maxAge: Duration?

  /// Makes a policy of a count, an age, or both; without either, ended tasks are retained forever.
  public init(maxCount: Int? = nil, maxAge: Duration? = nil) {
    self.maxCount = maxCount
    self.maxAge = maxAge
  }

  /// Tasks are removed as soon as they end.
  public static let none = Retention(maxCount: 0)
  /// Tasks are retained until the queue's store is removed.
  public static let forever = Retention()

  /// Whether tasks are retained at all when they end.
  var retains: Bool { maxCount.map { $0 > 0 } ?? true }
}
