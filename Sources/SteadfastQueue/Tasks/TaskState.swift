public import SystemFoundation

/// The state of a task: it waits, is being performed, or has ended.
///
/// More states may be added.
@nonexhaustive
public enum TaskState: String, Sendable, Hashable, CaseIterable {
  /// The task waits until it can be performed: for its available date or a worker, for example.
  case waiting
  /// The task is being performed: a queue has claimed it.
  case running
  /// The task's handler has suspended it until a date, until a completion arrives, or until either.
  ///
  /// A suspended task occupies no worker, and its wait does not count as an attempt. See
  /// <doc:WorkInSteps>.
  case suspended
  /// The task is parked because its payload could not be decoded.
  ///
  /// A parked task is tried again when the queue next runs, when a handler is registered under the
  /// task's name, or when another process runs a newer version of the program
  /// (``TaskPayload/schemaVersion``).
  case parked
  /// The task was paused by ``TaskQueue/pause(_:)``, and waits until it is resumed or restarted.
  case paused
  /// The task has succeeded, and is retained (``Retention``).
  case succeeded
  /// The task was abandoned, and is retained with the reason: it is a *dead letter*.
  case abandoned
  /// The task was cancelled, and is retained.
  case cancelled

  /// Whether the task has ended and will not be performed again.
  public var isFinished: Bool {
    switch self {
    case .waiting, .running, .suspended, .parked, .paused: false
    case .succeeded, .abandoned, .cancelled: true
    }
  }

  /// Whether a claim can return a task in this state.
  var isClaimable: Bool { self == .waiting || self == .suspended }

  /// The states of tasks that have not ended.
  package static let unfinished = Set(allCases.filter { !$0.isFinished })
}

/// How a task ended.
public enum TaskOutcome: Sendable, Hashable {
  /// The task's handler returned, and the success is stored.
  case succeeded
  /// The task was abandoned; the reason is the text of the last error.
  ///
  /// A task is abandoned if its retries are used up, if its handler abandons it, if it has expired,
  /// or if too many processes have ended while they performed it.
  case abandoned(reason: String)
  /// The task was cancelled before it ended.
  case cancelled
}

extension TaskOutcome: CustomStringConvertible {
  /// The outcome as text, as in `succeeded`, or `abandoned: the post was deleted`.
  public var description: String {
    switch self {
    case .succeeded: "succeeded"
    case .abandoned(let reason): "abandoned: \(reason)"
    case .cancelled: "cancelled"
    }
  }
}

/// Why an attempt failed, and when.
public struct TaskFailure: Sendable, Hashable {
  /// The text of the attempt's error.
  public let reason: String
  /// When the attempt ended.
  public let date: Date

  /// Makes a failure.
  public init(reason: String, date: Date) {
    self.reason = reason
    self.date = date
  }
}
