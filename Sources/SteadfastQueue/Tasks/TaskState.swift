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
  /// How the attempt failed; `nil` if that is not known, because an earlier version of this library
  /// stored the failure.
  public let attempt: FailedAttempt?

  /// Makes a failure.
  public init(reason: String, date: Date, attempt: FailedAttempt? = nil) {
    self.reason = reason
    self.date = date
    self.attempt = attempt
  }
}

/// How an attempt failed, how long it took, and which process made it.
///
/// A store stores only the ``text``.
public struct FailedAttempt: Sendable, Hashable {
  /// How an attempt failed.
  ///
  /// More kinds may be added.
  @nonexhaustive
  public enum Kind: String, Sendable, Hashable, CaseIterable {
    /// The handler threw an error.
    case failed
    /// The handler took longer than the task's time limit, or threw a `TimeoutError` itself.
    case timedOut
    /// The payload could not be decoded, or the handler has parked the task.
    case parked
    /// The process ended while it performed the task, too often.
    case interrupted
    /// The task had expired before the attempt could begin.
    case expired
  }

  /// The properties as text, as in `timedOut 30000412 web 412 mails 1.3`.
  ///
  /// The number is the duration in microseconds.
  public let text: String

  /// Makes a value of its ``text``; stores call this.
  public init(text: String) { self.text = text }

  /// Makes the description of an attempt.
  ///
  /// - Parameters:
  ///   - kind: how the attempt failed.
  ///   - duration: how long the handler ran, rounded to microseconds; `nil` if it was not called.
  ///   - holder: who made the attempt.
  public init(_ kind: Kind, duration: Duration? = nil, holder: String = "") {
    let microseconds = duration.map { min(max(0, $0 / .microseconds(1)), 9e18).rounded() }
    let ran = microseconds.map { "\(Int64($0))" } ?? "-"
    text = "\(kind.rawValue) \(ran)" + (holder.isEmpty ? "" : " \(holder)")
  }

  /// How the attempt failed; `nil` if a later version of this library has stored another kind.
  public var kind: Kind? { words.first.flatMap { Kind(rawValue: String($0)) } }

  /// How long the handler ran; `nil` if it was not called.
  public var duration: Duration? {
    words.dropFirst().first.flatMap { Int64($0) }.map { .microseconds($0) }
  }

  /// Who made the attempt (``TaskClaim/holder``).
  ///
  /// It is empty in a store that only one queue uses, and for ``Kind/interrupted`` and
  /// ``Kind/expired``: the queue that finds this has not made the attempt.
  public var holder: String { words.count > 2 ? String(words[2]) : "" }

  private var words: [Substring] {
    text.split(separator: " ", maxSplits: 2, omittingEmptySubsequences: false)
  }
}
