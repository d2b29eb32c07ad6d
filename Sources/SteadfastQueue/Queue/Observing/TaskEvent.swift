public import SystemFoundation

/// Something that happened in a queue.
///
/// An event that reports that a task has ended is posted after this is stored. Later versions may
/// add more kinds of events.
@nonexhaustive
public enum TaskEvent: Sendable {
  /// A task was added.
  case enqueued(TaskRecord)
  /// An attempt begins.
  case started(TaskRecord)
  /// A handler reported its progress, from 0 to 1.
  case progressed(TaskRecord, fraction: Double)
  /// An attempt failed, and the task is retried at `retryDate`.
  case failed(TaskRecord, reason: String, retryDate: Date, timing: TaskTiming)
  /// A handler snoozed its task until this date, which does not count as a retry.
  case snoozed(TaskRecord, until: Date)
  /// An attempt suspended its task until this date or until a completion arrives, whichever is
  /// first.
  ///
  /// The date is `nil` if the task waits only for a completion.
  case suspended(TaskRecord, until: Date?)
  /// A completion was stored for a task, which is available again if it was suspended.
  ///
  /// In a group, the event is posted by the queue on which the wait was completed.
  case completionArrived(TaskID)
  /// A handler returned.
  case succeeded(TaskRecord, timing: TaskTiming)
  /// A task was abandoned.
  ///
  /// The timing is that of the task's last attempt. It is `nil` if the task was abandoned without
  /// another attempt, because it had expired or had been interrupted too often.
  case abandoned(TaskRecord, reason: String, timing: TaskTiming?)
  /// A task was cancelled before it ended.
  case cancelled(TaskID)
  /// A task was cancelled because a task for whose success it waited was abandoned or cancelled.
  case cancelledByDependency(TaskID, because: TaskID)
  /// A task of a batch has ended, or was retried after it had ended.
  ///
  /// The ID is that of the batch's follower, the task that starts when all others have ended.
  case batchProgressed(followedBy: TaskID, BatchProgress)
  /// A task was paused.
  case paused(TaskID)
  /// A paused task was resumed, and waits again.
  case resumed(TaskID)
  /// A caller retried a task, for example an abandoned one, which waits again as if it were new.
  case retried(TaskID)
  /// A caller changed the earliest date at which a task may be performed.
  case rescheduled(TaskID, to: Date)
  /// The payload or the options of a task that had not ended were changed.
  case updated(TaskID)
  /// A task was replaced by a task with the same unique key, its successor.
  ///
  /// This happens if the successor was enqueued during an attempt that failed or was snoozed.
  case superseded(TaskRecord, by: TaskID)
  /// An attempt was cancelled, and the task waits again as before the attempt.
  ///
  /// The reason is that the queue's run was cancelled or stopped, that one of the task's conditions
  /// no longer holds, or that a request to pause the task was withdrawn.
  case released(TaskRecord)
  /// The queue has a task that it can't perform.
  ///
  /// No handler is registered for the task's name, the task's payload can't be decoded, or the
  /// queue does not know whether one of the task's conditions holds. The task is performed when
  /// that has changed.
  case unhandled(TaskRecord, reason: String)
  /// Dates of a schedule have passed without an occurrence, which is the task for a date.
  ///
  /// `madeUpBy` is the occurrence that makes up for all of these dates; `nil` if they are skipped.
  /// Each date is reported once, by the process that found it missed.
  case occurrencesMissed(schedule: String, count: Int, madeUpBy: TaskID?)
  /// A schedule is parked: it has no next occurrence until the reason is removed.
  ///
  /// The event is posted when the schedule is parked. While the schedule is parked, the event is
  /// posted again each time a queue starts to run.
  case scheduleParked(String, reason: String)
  /// The store is temporarily unavailable, and a call to it is retried at about this date.
  ///
  /// The event is posted before each retry. The queue continues when the store answers.
  case storeUnavailable(reason: String, retryDate: Date)
  /// A rate limit is used up or paused, so the tasks to which it applies can't start before this
  /// date.
  ///
  /// The event is posted when the queue looks for tasks, once for each date.
  case rateLimited(String, until: Date)
  /// This observer fell behind, and `count` events were dropped for it.
  case missed(count: Int)
}

extension TaskEvent {
  /// The ID of the event's task; `nil` for ``missed(count:)``, ``rateLimited(_:until:)``,
  /// ``storeUnavailable(reason:retryDate:)``, and events about a schedule.
  ///
  /// For ``batchProgressed(followedBy:_:)``, the task is the batch's follower.
  public var taskID: TaskID? {
    switch self {
    case .enqueued(let task), .started(let task), .progressed(let task, _),
      .failed(let task, _, _, _), .snoozed(let task, _), .suspended(let task, _),
      .succeeded(let task, _),
      .abandoned(let task, _, _), .superseded(let task, _), .released(let task),
      .unhandled(let task, _):
      task.id
    case .cancelled(let id), .cancelledByDependency(let id, _), .batchProgressed(let id, _),
      .paused(let id), .resumed(let id), .retried(let id), .completionArrived(let id),
      .rescheduled(let id, _), .updated(let id):
      id
    case .missed, .storeUnavailable, .occurrencesMissed, .scheduleParked, .rateLimited: nil
    }
  }
}

extension TaskEvent: CustomStringConvertible {
  /// A description of what happened, to which task, and why.
  ///
  /// It does not contain the task's payload, unless the text of a handler's error does.
  public var description: String {
    switch self {
    case .enqueued(let task): "enqueued: \(task)"
    case .started(let task): "started: \(task)"
    case .progressed(let task, let fraction): "progressed to \(fraction): \(task)"
    case .failed(let task, let reason, let date, let timing):
      "failed, retry at \(date): \(task), \(timing): \(reason)"
    case .snoozed(let task, let date): "snoozed until \(date): \(task)"
    case .suspended(let task, let date):
      "suspended \(date.map { "until \($0)" } ?? "until a completion"): \(task)"
    case .completionArrived(let id): "completion arrived: \(id)"
    case .succeeded(let task, let timing): "succeeded: \(task), \(timing)"
    case .abandoned(let task, let reason, _): "abandoned: \(task): \(reason)"
    case .cancelled(let id): "cancelled: \(id)"
    case .cancelledByDependency(let id, let cause):
      "cancelled: \(id), because \(cause) has not succeeded"
    case .batchProgressed(let id, let batch): "batch before \(id): \(batch)"
    case .paused(let id): "paused: \(id)"
    case .resumed(let id): "resumed: \(id)"
    case .retried(let id): "retried: \(id)"
    case .rescheduled(let id, let date): "rescheduled to \(date): \(id)"
    case .updated(let id): "updated: \(id)"
    case .superseded(let task, let id): "superseded by \(id): \(task)"
    case .released(let task): "released: \(task)"
    case .unhandled(let task, let reason): "unhandled: \(task): \(reason)"
    case .occurrencesMissed(let schedule, let count, let id):
      "\(count) dates of the schedule '\(schedule)' missed, "
        + (id.map { "made up for by \($0)" } ?? "and skipped")
    case .scheduleParked(let schedule, let reason): "schedule '\(schedule)' parked: \(reason)"
    case .storeUnavailable(let reason, let date): "store unavailable, retry at \(date): \(reason)"
    case .rateLimited(let limit, let date): "rate limit used up until \(date): \(limit)"
    case .missed(let count): "missed: \(count) events"
    }
  }
}

/// How long a task waited for an attempt, and how long the attempt took.
public struct TaskTiming: Sendable, Hashable {
  /// The time from the task's available date until the attempt began, measured by the clock's
  /// dates.
  public let waited: Duration
  /// The time that the handler and ``TaskMiddleware`` took, measured by the clock's instants.
  public let ran: Duration

  static let zero = TaskTiming(waited: .zero, ran: .zero)
}

extension TaskTiming: CustomStringConvertible {
  /// Both times, such as `waited 0.2 seconds, ran 1.5 seconds`.
  public var description: String { "waited \(waited), ran \(ran)" }
}
