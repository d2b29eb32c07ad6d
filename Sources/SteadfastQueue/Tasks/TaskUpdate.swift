#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
public import Foundation
#endif

/// What is to be different about a task that waits: all that is not `nil`.
public struct TaskUpdate: Sendable {
  /// What the task is to carry.
  public var payload: StoredPayload?
  /// Its rank among the tasks that are ready.
  public var priority: TaskQueue.Priority?
  /// How often it may be retried.
  public var maxRetries: RetryLimit?
  /// Whether a failure is followed by the queue's backoff.
  public var usesBackoff: Bool?
  /// How long one attempt may take.
  public var timeLimit: Duration?
  /// The date from which no attempt begins any more.
  public var expiryDate: Date?
  /// The labels by which it is found, in place of those that it has.
  public var tags: Set<String>?

  /// Makes an update that changes nothing but what is given.
  public init(
    payload: StoredPayload? = nil,
    priority: TaskQueue.Priority? = nil,
    maxRetries: RetryLimit? = nil,
    usesBackoff: Bool? = nil,
    timeLimit: Duration? = nil,
    expiryDate: Date? = nil,
    tags: Set<String>? = nil
  ) {
    self.payload = payload
    self.priority = priority
    self.maxRetries = maxRetries
    self.usesBackoff = usesBackoff
    self.timeLimit = timeLimit
    self.expiryDate = expiryDate
    self.tags = tags
  }

  /// The same update with its payload in another form.
  func replacing(payload: StoredPayload) -> TaskUpdate {
    var update = self
    update.payload = payload
    return update
  }

  /// Throws if it holds what no store can keep.
  func checkForm() throws(TaskQueueError) {
    if let maxRetries { try TaskQueueError.check(maxRetries, "maxRetries") }
    try TaskQueueError.check(timeLimit: timeLimit, "timeLimit")
    try TaskQueueError.check(expiryDate, "expiryDate")
  }

  /// How many bytes more a file takes for the task afterwards, about.
  func growth(of record: TaskRecord) -> Int {
    func size(_ payload: StoredPayload) -> Int { (try? payload.bytes().count) ?? 0 }
    func size(_ tags: Set<String>) -> Int { tags.reduce(0) { $0 + $1.utf8.count + 3 } }
    return (payload.map { size($0) - size(record.payload) } ?? 0)
      + (tags.map { size($0) - size(record.tags) } ?? 0)
  }
}
