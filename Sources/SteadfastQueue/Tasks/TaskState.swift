/// Where a task is in its life.
///
/// More states may be added.
@nonexhaustive
public enum TaskState: String, Sendable, Hashable, CaseIterable {
  /// The task waits to be performed: from its available date on, when a worker is free.
  case waiting
  /// The task is being performed: a queue has claimed it.
  case running
  /// Its last attempt has suspended the task: it waits for a date, for a completion, or for both.
  ///
  /// It takes no worker and counts no attempt. See <doc:WorkInSteps>.
  case suspended
  /// The task is parked because its payload could not be decoded.
  ///
  /// It is tried again when the queue next runs, or when a handler is registered under its name.
  case parked
  /// The task was paused by ``TaskQueue/pause(_:)``, until it is resumed or restarted.
  case paused
  /// The task has succeeded, and is retained by the queue's retention policy.
  case succeeded
  /// The task was abandoned, and is retained with the reason: a dead letter.
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

  /// Whether a claim may find a task in this state.
  var isClaimable: Bool { self == .waiting || self == .suspended }

  /// The states of tasks that have not ended.
  package static let unfinished = Set(allCases.filter { !$0.isFinished })
}
