#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
public import Foundation
#endif

/// A task as a store keeps it, and as look-ups and events show it.
public struct TaskRecord: Sendable, Identifiable {
  private var shared: SharedDefinition
  // A flag behind an optional lies in what that leaves free: hence the order, here and below.

  /// The date from which the task may be performed; after a failure, the date of the retry.
  public var availableDate: Date
  /// How many attempts have failed.
  public var retryCount: Int
  /// How often a process ended while it performed the task.
  public var interruptionCount: Int
  /// The text of the last error, shortened; `nil` if none.
  public var lastError: String?
  /// When the last attempt failed; `nil` if none has.
  public var failedDate: Date?
  /// When the task ended; `nil` while it has not.
  public var finishedDate: Date?
  /// Where the task is in its life.
  public var state: TaskState

  /// Makes a record; a store does, of what it has kept.
  public init(
    id: TaskID,
    name: String,
    payload: StoredPayload,
    priority: TaskQueue.Priority = .normal,
    createdDate: Date,
    maxRetries: RetryLimit = 10,
    usesBackoff: Bool = true,
    uniqueKey: String? = nil,
    tags: Set<String> = [],
    timeLimit: Duration? = nil,
    expiryDate: Date? = nil,
    state: TaskState = .waiting,
    availableDate: Date,
    retryCount: Int = 0,
    interruptionCount: Int = 0,
    lastError: String? = nil,
    failedDate: Date? = nil,
    finishedDate: Date? = nil
  ) {
    shared = SharedDefinition(
      Definition(
        id: id,
        name: name,
        payload: payload,
        priority: priority,
        createdDate: createdDate,
        maxRetries: maxRetries,
        usesBackoff: usesBackoff,
        uniqueKey: uniqueKey,
        tags: tags,
        timeLimit: timeLimit,
        expiryDate: expiryDate
      )
    )
    self.state = state
    self.availableDate = availableDate
    self.retryCount = retryCount
    self.interruptionCount = interruptionCount
    self.lastError = lastError
    self.failedDate = failedDate
    self.finishedDate = finishedDate
  }

  /// The task's identity.
  public var id: TaskID { shared.value.id }
  /// The name under which its handler is registered.
  public var name: String { shared.value.name }
  /// What the task carries.
  public var payload: StoredPayload { shared.value.payload }
  /// Its rank among the tasks that are ready.
  public var priority: TaskQueue.Priority { shared.value.priority }
  /// When it was enqueued.
  public var createdDate: Date { shared.value.createdDate }
  /// How often it may be retried.
  public var maxRetries: RetryLimit { shared.value.maxRetries }
  /// Whether a failure is followed by the queue's backoff, or by another attempt at once.
  public var usesBackoff: Bool { shared.value.usesBackoff }
  /// The key that no second task may bear while this one is known; `nil` if it has none.
  public var uniqueKey: String? { shared.value.uniqueKey }
  /// Labels by which tasks are found, and cancelled together.
  public var tags: Set<String> { shared.value.tags }
  /// How long one attempt may take; `nil` for any time.
  public var timeLimit: Duration? { shared.value.timeLimit }
  /// The date from which no attempt begins any more; `nil` if none.
  public var expiryDate: Date? { shared.value.expiryDate }
}

extension TaskRecord {
  /// The same task with its payload in another form.
  func replacing(payload: StoredPayload) -> TaskRecord {
    var definition = shared.value
    definition.payload = payload
    var record = self
    record.shared = SharedDefinition(definition)
    return record
  }

  /// What never changes about a task.
  private struct Definition: Sendable {
    let id: TaskID
    let name: String
    var payload: StoredPayload
    let priority: TaskQueue.Priority
    let createdDate: Date
    let maxRetries: RetryLimit
    let usesBackoff: Bool
    let uniqueKey: String?
    let tags: Set<String>
    let timeLimit: Duration?
    let expiryDate: Date?
  }

  /// A definition that records share, so that moving one copies one reference.
  private final class SharedDefinition: Sendable {
    let value: Definition

    init(_ value: Definition) { self.value = value }
  }
}
