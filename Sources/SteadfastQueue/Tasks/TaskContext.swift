#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
public import Foundation
#endif

/// What a handler is told about the task that it performs, beside the payload.
public struct TaskContext: Sendable {
  private let record: TaskRecord

  init(_ record: TaskRecord) { self.record = record }

  /// The task's identity, the same at each attempt: the key by which a server can recognise a
  /// repetition.
  public var id: TaskID { record.id }
  /// The name that the task is stored under; a former one if the type was renamed since.
  public var name: String { record.name }
  /// How many attempts have failed before this one; 0 on the first.
  public var retryCount: Int { record.retryCount }
  /// How many retries the task has.
  public var maxRetries: RetryLimit { record.maxRetries }
  /// Whether a failure of this attempt abandons the task.
  public var isLastAttempt: Bool { !record.maxRetries.allows(retryCount: record.retryCount + 1) }
  /// How often the task was interrupted: begun by a process that ended before the attempt did.
  public var interruptionCount: Int { record.interruptionCount }
  /// When the task was enqueued.
  public var createdDate: Date { record.createdDate }
  /// The date from which this attempt was allowed.
  public var availableDate: Date { record.availableDate }
}
