public import SystemFoundation

/// How a task that stays in the store changes its state, its available date or its position.
///
/// The functions of ``TaskChange`` make moves. The properties say what changes, with two
/// exceptions: a restart makes the task as it was when it was enqueued, and a suspended task that
/// is paused wakes first (``TaskRecord/wake()``). ``TaskRecord/move(by:)`` does all of it.
public struct TaskMove: Sendable, Hashable {
  /// The reasons why a task moves.
  @nonexhaustive
  public enum Kind: String, Sendable, Hashable, CaseIterable {
    /// An attempt has ended, and another one is to follow.
    case retry
    /// A claimed task is not attempted.
    case release
    /// The task's payload can't be decoded.
    case park
    /// A caller pauses the task.
    case pause
    /// A caller resumes the task.
    case resume
    /// A caller starts the task again.
    case restart
    /// The task gets another available date.
    case reschedule
  }

  /// Why the task moves.
  public let kind: Kind
  /// The task's new available date; `nil` if the date stays.
  public let availableDate: Date?
  /// The task's new ``TaskRecord/countedFrom``; it has no meaning if ``availableDate`` is `nil`.
  public internal(set) var countedFrom: Date?
  /// The task's new number of retries; `nil` if the number stays.
  ///
  /// If it is not `nil`, the task's ``TaskRecord/interruptionCount`` becomes 0.
  public let retryCount: Int?
  /// The failure to record; `nil` if there is none.
  public let failure: TaskFailure?
  /// For a task that is parked, the greatest payload version that its handler can decode; `nil` if
  /// this is not known.
  public let knownVersion: Int?
  /// Whether the task's memory is deleted.
  public let forgetsMemory: Bool

  init(
    _ kind: Kind,
    availableDate: Date? = nil,
    countedFrom: Date? = nil,
    retryCount: Int? = nil,
    failure: TaskFailure? = nil,
    knownVersion: Int? = nil,
    forgetsMemory: Bool = false
  ) {
    self.kind = kind
    self.availableDate = availableDate
    self.countedFrom = countedFrom
    self.retryCount = retryCount
    self.failure = failure
    self.knownVersion = knownVersion
    self.forgetsMemory = forgetsMemory
  }

  /// Returns the new state of a task; `nil` if a task in this state can't move like this.
  public func state(from state: TaskState) -> TaskState? {
    switch kind {
    case .retry, .release: state == .running ? .waiting : nil
    case .park: state == .running ? .parked : nil
    case .pause: state.isFinished || state == .paused ? nil : .paused
    case .resume: state == .paused ? .waiting : nil
    case .restart: .waiting
    case .reschedule:
      switch state {
      case .running, .suspended: .waiting
      case .waiting, .parked, .paused: state
      case .succeeded, .abandoned, .cancelled: nil
      }
    }
  }

  /// Whether the task keeps its position among the tasks with the same priority and available date.
  ///
  /// Otherwise, it goes behind the waiting ones.
  public var keepsPosition: Bool { kind == .release }

  /// The task's new ``TaskRecord/isPostponed``; `nil` if it stays.
  public var isPostponed: Bool? { availableDate == nil ? nil : kind == .retry }

  /// Whether a task that waits for the unique key may take the task's place.
  public var yieldsToSuccessor: Bool { kind == .retry }

  /// Whether the task becomes the holder of its unique key again, if it no longer is.
  public var takesKey: Bool { kind == .restart }
}

/// How a task ends.
///
/// The functions of ``TaskChange`` make ends.
public struct TaskEnd: Sendable, Hashable {
  /// The date of the end.
  public let date: Date
  /// One failure or none: an array is small, as a change must be.
  private let failures: [TaskFailure]
  /// The task's last state: ``TaskState/succeeded``, ``TaskState/abandoned`` or
  /// ``TaskState/cancelled``.
  public let state: TaskState
  /// Whether the task is retained instead of removed.
  public let retains: Bool

  /// Why the task is abandoned; `nil` in the other states.
  public var failure: TaskFailure? { failures.first }

  init(_ state: TaskState, date: Date, failure: TaskFailure? = nil, retains: Bool) {
    self.date = date
    failures = failure.map { [$0] } ?? []
    self.state = state
    self.retains = retains
  }

  /// The outcome that callers get.
  var outcome: TaskOutcome {
    switch state {
    case .abandoned: .abandoned(reason: failure?.reason ?? "")
    case .cancelled: .cancelled
    default: .succeeded
    }
  }
}
