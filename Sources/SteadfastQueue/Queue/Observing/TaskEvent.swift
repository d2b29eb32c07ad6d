#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
public import Foundation
#endif

/// Something that happened in a queue.
///
/// What ended a task is told once it is stored. More kinds of events may be added.
@nonexhaustive
public enum TaskEvent: Sendable {
  /// A task was added.
  case enqueued(TaskRecord)
  /// An attempt begins.
  case started(TaskRecord)
  /// A handler reported how far it is: from 0 to 1.
  case progressed(TaskRecord, fraction: Double)
  /// An attempt failed, and the task is tried again at this date.
  case failed(TaskRecord, reason: String, retryDate: Date, timing: TaskTiming)
  /// A handler put its task off until this date; that counts as no attempt.
  case snoozed(TaskRecord, until: Date)
  /// A handler returned.
  case succeeded(TaskRecord, timing: TaskTiming)
  /// A task was given up; the timing is that of its last attempt, and `nil` if it was given up in
  /// place of an attempt, because it had expired or had interrupted too many processes.
  case abandoned(TaskRecord, reason: String, timing: TaskTiming?)
  /// A task was taken out before it ended.
  case cancelled(TaskID)
  /// A task was set aside.
  case paused(TaskID)
  /// A task that was set aside waits again.
  case resumed(TaskID)
  /// A task waits again as if it were new: one that was given up is tried once more, for example.
  case restarted(TaskID)
  /// A task may be performed from another date on.
  case rescheduled(TaskID, to: Date)
  /// What was chosen for a task that waits was changed.
  case updated(TaskID)
  /// An attempt was cut short, and the task waits as before: the queue's run was cancelled, or the
  /// task was to be paused and then not.
  case released(TaskRecord)
  /// A task is there that the queue can't perform: no handler is registered for its name, or its
  /// payload can't be decoded. It stays, and is performed when that has changed.
  case unhandled(TaskRecord, reason: String)
  /// This observer fell behind, and this many events were not kept for it.
  case missed(count: Int)
}

extension TaskEvent: CustomStringConvertible {
  /// What happened, to which task, and why it failed; never its payload, unless the text of a
  /// handler's error shows it.
  public var description: String {
    switch self {
    case .enqueued(let task): "enqueued: \(task)"
    case .started(let task): "started: \(task)"
    case .progressed(let task, let fraction): "progressed to \(fraction): \(task)"
    case .failed(let task, let reason, let date, let timing):
      "failed, retry at \(date): \(task), \(timing): \(reason)"
    case .snoozed(let task, let date): "snoozed until \(date): \(task)"
    case .succeeded(let task, let timing): "succeeded: \(task), \(timing)"
    case .abandoned(let task, let reason, _): "abandoned: \(task): \(reason)"
    case .cancelled(let id): "cancelled: \(id)"
    case .paused(let id): "paused: \(id)"
    case .resumed(let id): "resumed: \(id)"
    case .restarted(let id): "restarted: \(id)"
    case .rescheduled(let id, let date): "rescheduled to \(date): \(id)"
    case .updated(let id): "updated: \(id)"
    case .released(let task): "released: \(task)"
    case .unhandled(let task, let reason): "unhandled: \(task): \(reason)"
    case .missed(let count): "missed: \(count) events"
    }
  }
}

/// How long a task waited for an attempt, and how long the attempt took.
public struct TaskTiming: Sendable, Hashable {
  /// How long the task was available before the attempt began, by the dates of the clock.
  ///
  /// So long all workers were busy, or the queue did not run.
  public let waited: Duration
  /// How long the handler took, by the clock's instants.
  public let ran: Duration

  static let zero = TaskTiming(waited: .zero, ran: .zero)
}

extension TaskTiming: CustomStringConvertible {
  /// As in `waited 0.2 seconds, ran 1.5 seconds`.
  public var description: String { "waited \(waited), ran \(ran)" }
}
