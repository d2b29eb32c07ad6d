/// Where a task is in its life.
///
/// More states may be added.
@nonexhaustive
public enum TaskState: String, Sendable, Hashable, CaseIterable {
  /// To be performed: from its available date on, when a worker is free.
  case waiting
  /// Being performed: a queue has claimed it.
  case running
  /// Put aside because its payload could not be decoded; tried again when the queue next runs or
  /// a handler is registered under its name.
  case parked
  /// Set aside by ``TaskQueue/pause(_:)`` until it is resumed or restarted.
  case paused
  /// Done, and kept by the queue's retention policy.
  case succeeded
  /// Given up and kept, with the reason: a dead letter.
  case abandoned
  /// Taken out and kept.
  case cancelled

  /// Whether the task has ended and will not be performed again.
  public var isFinished: Bool {
    switch self {
    case .waiting, .running, .parked, .paused: false
    case .succeeded, .abandoned, .cancelled: true
    }
  }

  /// The states of tasks that have not ended.
  static let unfinished = Set(allCases.filter { !$0.isFinished })
}
