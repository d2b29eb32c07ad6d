#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
public import Foundation
#endif

/// The changes to a task that waits: all properties that are not `nil`.
public struct TaskUpdate: Sendable {
  /// The new payload of the task.
  public var payload: StoredPayload?
  /// Its rank among the available tasks.
  public var priority: TaskQueue.Priority?
  /// How often it may be retried.
  public var maxRetries: RetryLimit?
  /// Whether a failure is followed by the queue's backoff.
  public var usesBackoff: Bool?
  /// How long one attempt may take.
  public var timeLimit: Duration?
  /// The date from which no attempt begins.
  public var expiryDate: Date?
  /// The labels by which it is found, in place of those that it has.
  public var tags: Set<String>?

  /// Makes an update that changes only what is given.
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

  /// Returns the same update with its payload in another form.
  func replacing(payload: StoredPayload) -> TaskUpdate {
    var update = self
    update.payload = payload
    return update
  }

  /// Throws if the update has a value that not every store can hold.
  func checkForm() throws(TaskQueueError) {
    try checkReadable()
    try checkTexts()
    try checkDates()
  }

  /// Throws if the update makes no sense, even in a file that an earlier version has written.
  func checkReadable() throws(TaskQueueError) {
    if let maxRetries { try TaskQueueError.check(maxRetries, "maxRetries") }
    try TaskQueueError.check(timeLimit: timeLimit, "timeLimit")
    try TaskQueueError.check(expiryDate, "expiryDate")
  }

  /// Returns roughly how many more bytes the task takes in a file afterwards.
  func growth(of record: TaskRecord) -> Int {
    func size(_ payload: StoredPayload) -> Int { (try? payload.bytes().count) ?? 0 }
    func size(_ tags: Set<String>) -> Int { tags.reduce(0) { $0 + $1.utf8.count + 3 } }
    return (payload.map { size($0) - size(record.payload) } ?? 0)
      + (tags.map { size($0) - size(record.tags) } ?? 0)
  }
}
