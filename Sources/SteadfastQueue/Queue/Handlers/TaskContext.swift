#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
public import Foundation
#endif

/// What a handler knows about the task that it performs, in addition to the payload.
public struct TaskContext: Sendable {
  let record: TaskRecord
  let queue: TaskQueue
  let worker: Int
  let number: AttemptNumber
  /// The token of the task's lease.
  let leaseToken: UInt64
  /// What the worker's attempt knows of the task's memory.
  let memory: WorkerMemory
  // Most tasks have none. Then this is one word, and copying it costs nothing.
  private var occurrenceBox: OccurrenceBox?

  init(
    _ task: ClaimedTask,
    _ queue: TaskQueue,
    _ worker: Int,
    _ number: AttemptNumber,
    _ memory: WorkerMemory
  ) {
    record = task.record
    leaseToken = task.lease.token
    self.queue = queue
    self.worker = worker
    self.number = number
    self.memory = memory
  }

  /// The task's ID, the same at each attempt.
  ///
  /// A server can recognise a repetition by it.
  public var id: TaskID { record.id }
  /// The name that the task is stored under; a former name if the type was renamed since.
  public var name: String { record.name }
  /// How many attempts have failed before this one; 0 on the first.
  public var retryCount: Int { record.retryCount }
  /// How many retries the task has.
  public var maxRetries: RetryLimit { record.maxRetries }
  /// Whether a failure of this attempt abandons the task.
  ///
  /// The handler can still restart the task (``TaskHandler/shouldRestart(_:after:in:)``).
  public var isLastAttempt: Bool { !record.maxRetries.allows(retryCount: record.nextRetryCount) }
  /// How often the task was interrupted: its process ended before the attempt did, or just before
  /// it began.
  public var interruptionCount: Int { record.interruptionCount }
  /// When the task was enqueued.
  public var createdDate: Date { record.createdDate }
  /// The date from which this attempt was allowed.
  public var availableDate: Date { record.availableDate }
  /// Whether a retry waits for the queue's backoff, or is due at once.
  public var usesBackoff: Bool { record.usesBackoff }
  /// The text of the last error; `nil` if no attempt has failed.
  public var lastError: String? { record.lastError }
  /// The last five failures, the oldest first (``TaskRecord/failures``).
  public var failures: [TaskFailure] { record.failures }
  /// The labels that the task was given.
  public var tags: Set<String> { record.tags }
  /// The task's rank among the available tasks.
  public var priority: TaskQueue.Priority { record.priority }
  /// The task's unique key; `nil` if it has none.
  public var uniqueKey: String? { record.uniqueKey }
  /// The task's order key; `nil` if it has none.
  public var orderKey: String? { record.orderKey }
  /// How long an attempt may take; `nil` if nothing limits it.
  public var timeLimit: Duration? { record.timeLimit }
  /// When the task is abandoned if it is not done; `nil` if it does not expire.
  public var expiryDate: Date? { record.expiryDate }

  /// The date for which a recurring task is performed; `nil` for other tasks.
  public var occurrence: TaskOccurrence? { occurrenceBox?.occurrence }

  mutating func setOccurrence(_ occurrence: TaskOccurrence) {
    occurrenceBox = OccurrenceBox(occurrence)
  }

  /// The tasks that this one has waited for, and what became of them.
  public var dependencies: TaskDependencies { record.dependencies }

  /// Reports the task's progress to observers and callers that hold the task: from 0 to 1.
  ///
  /// A fraction outside of that range is limited to it; not-a-number is ignored. Progress is not
  /// stored. Reports after the handler has ended, or after its Swift task was cancelled, are
  /// ignored.
  public func report(progress fraction: Double) {
    queue.report(fraction, of: record, by: worker, number)
  }
}

extension TaskContext: CustomStringConvertible {
  /// The task's name, ID and state, without its payload.
  public var description: String { "attempt of \(record)" }
}

private final class OccurrenceBox: Sendable {
  let occurrence: TaskOccurrence

  init(_ occurrence: TaskOccurrence) { self.occurrence = occurrence }
}
