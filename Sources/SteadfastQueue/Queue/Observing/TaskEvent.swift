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
