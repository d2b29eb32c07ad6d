#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
public import Foundation
#endif

/// What a handler is told about the task that it performs, beside the payload.
public struct TaskContext: Sendable {
  private let record: TaskRecord
  let queue: TaskQueue
  private let worker: Int
  private let number: AttemptNumber

  init(_ record: TaskRecord, queue: TaskQueue, worker: Int, number: AttemptNumber) {
    self.record = record
    self.queue = queue
    self.worker = worker
    self.number = number
  }

  /// The task's identity, the same at each attempt: the key by which a server can recognise a
  /// repetition.
  public var id: TaskID { record.id }
  /// The name that the task is stored under; a former one if the type was renamed since.
  public var name: String { record.name }
  /// How many attempts have failed before this one; 0 on the first.
  public var retryCount: Int { record.retryCount }
  /// How many retries the task has.
  public var maxRetries: RetryLimit { record.maxRetries }
  /// Whether a failure of this attempt abandons the task, unless its handler wants it begun anew
  /// (``TaskHandler/shouldRestart(_:after:in:)``).
  public var isLastAttempt: Bool { !record.maxRetries.allows(retryCount: record.nextRetryCount) }
  /// How often the task was interrupted: begun by a process that ended before the attempt did.
  public var interruptionCount: Int { record.interruptionCount }
  /// When the task was enqueued.
  public var createdDate: Date { record.createdDate }
  /// The date from which this attempt was allowed.
  public var availableDate: Date { record.availableDate }
  /// Whether a failure is followed by the queue's backoff, or by another attempt at once.
  public var usesBackoff: Bool { record.usesBackoff }
  /// The text of the last error; `nil` if no attempt has failed.
  public var lastError: String? { record.lastError }
  /// The last five failures, the oldest first (``TaskRecord/failures``).
  public var failures: [TaskFailure] { record.failures }
  /// The labels that the task was given.
  public var tags: Set<String> { record.tags }

  /// Tells observers and those who hold the task how far it is: 0 at the beginning, 1 at the end.
  ///
  /// What is outside of that is brought into it; what is no number is not told. Progress is not
  /// stored. After the handler has ended, or its task was cancelled, nothing is told any more.
  public func report(progress fraction: Double) {
    queue.report(fraction, of: record, by: worker, number)
  }
}

extension TaskContext: CustomStringConvertible {
  /// The task's name, identity and state, without its payload.
  public var description: String { "attempt of \(record)" }
}
