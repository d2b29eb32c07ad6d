#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// The change that settles a task, and the task's record before the change.
///
/// It is an object because it has many parts to copy, and many readers.
final class Settlement: Sendable {
  let change: TaskChange
  let record: TaskRecord
  /// What the handler returned.
  let value: (any Sendable)?
  /// How long the attempt took; `nil` if none was made.
  let timing: TaskTiming?
  /// The handler that could not decode the payload, if the task is parked for that.
  let handler: AnyHandler?
  /// Whether an attempt was begun; if not, the task was only claimed.
  let wasBegun: Bool
  /// Whether the attempt has used what the task remembers.
  let usedMemory: Bool
  /// Whether the store failed to store the change, and may have stored it all the same.
  let isInDoubt: Bool

  init(
    change: TaskChange,
    record: TaskRecord,
    value: (any Sendable)? = nil,
    timing: TaskTiming? = nil,
    handler: AnyHandler? = nil,
    wasBegun: Bool = true,
    usedMemory: Bool = false,
    isInDoubt: Bool = false
  ) {
    self.change = change
    self.record = record
    self.value = value
    self.timing = timing
    self.handler = handler
    self.wasBegun = wasBegun
    self.usedMemory = usedMemory
    self.isInDoubt = isInDoubt
  }

  var inDoubt: Settlement {
    Settlement(
      change: change,
      record: record,
      value: value,
      timing: timing,
      handler: handler,
      wasBegun: wasBegun,
      usedMemory: usedMemory,
      isInDoubt: true
    )
  }

  /// How the task ended, if the change ends it.
  var outcome: TaskOutcome? {
    switch change {
    case .succeed: .succeeded
    case .abandon(_, let failure, _): .abandoned(reason: failure.reason)
    case .cancel: .cancelled
    case .retry, .release, .park, .pause, .resume, .restart, .reschedule, .update, .remove, .insert,
      .unpark, .extend, .prune, .rebase, .remember, .suspend, .complete, .setValue:
      nil
    }
  }

  /// Whether something else may be told of the task at the same time.
  ///
  /// The task is still there afterwards, so that more may happen to it; or a completion may come
  /// before, which needs a token that the task remembers.
  var mayMeetOthers: Bool {
    switch change {
    case .retry, .release, .park, .pause, .resume, .restart, .reschedule, .update, .remember,
      .suspend, .complete:
      true
    case .succeed, .abandon, .cancel: isKeptEnd || usedMemory || record.memorySize > 0
    case .remove, .insert, .unpark, .extend, .prune, .rebase, .setValue: false
    }
  }

  /// Whether the task has ended and is retained.
  var isKeptEnd: Bool {
    switch change {
    case .succeed(_, _, let retains), .abandon(_, _, let retains), .cancel(_, _, let retains):
      retains
    case .retry, .release, .park, .pause, .resume, .restart, .reschedule, .update, .remove, .insert,
      .unpark, .extend, .prune, .rebase, .remember, .suspend, .complete, .setValue:
      false
    }
  }

  /// The event to post when the change is stored, if there is one.
  var event: TaskEvent? {
    switch change {
    case .succeed: .succeeded(record, timing: timing ?? .zero)
    case .abandon(_, let failure, _):
      .abandoned(record, reason: failure.reason, timing: timing)
    case .retry(_, let date, _, let failure?, _):
      .failed(record, reason: failure.reason, retryDate: date, timing: timing ?? .zero)
    case .retry(_, let date, _, nil, _): .snoozed(record, until: date)
    case .release: wasBegun ? .released(record) : nil
    case .park(_, let failure): .unhandled(record, reason: failure.reason)
    case .cancel: .cancelled(record.id)
    case .pause: .paused(record.id)
    case .resume: .resumed(record.id)
    case .restart: .restarted(record.id)
    case .suspend(_, let date, _, _): .suspended(record, until: date < .distantFuture ? date : nil)
    case .complete(let id, _, _): .completionArrived(id)
    case .reschedule(_, let date, _): wasBegun ? .rescheduled(record.id, to: date) : nil
    case .update(let id, _): .updated(id)
    case .remove, .insert, .unpark, .extend, .prune, .rebase, .remember, .setValue: nil
    }
  }
}
