/// What a queue takes for a new task where `enqueue` is not told otherwise.
public struct TaskDefaults: Sendable {
  /// How often a failed task is tried again; by default 10 times, so 11 attempts.
  public var maxRetries: RetryLimit
  /// Whether a retry waits for the queue's backoff, or is due at once; by default it waits.
  public var usesBackoff: Bool
  /// The rank among the tasks that are available; by default ``TaskQueue/Priority/normal``.
  public var priority: TaskQueue.Priority
  /// How long one attempt may take; by default any time.
  public var timeLimit: Duration?

  /// Makes defaults; what is left out is as each property says.
  public init(
    maxRetries: RetryLimit = 10,
    usesBackoff: Bool = true,
    priority: TaskQueue.Priority = .normal,
    timeLimit: Duration? = nil
  ) {
    self.maxRetries = maxRetries
    self.usesBackoff = usesBackoff
    self.priority = priority
    self.timeLimit = timeLimit
  }
}
