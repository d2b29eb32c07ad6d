#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

extension TaskChange {
  /// Throws if the change has a value that no store can hold.
  ///
  /// Stores call it before they store a change. Dates must be finite, counts must not be negative,
  /// and a new task must not be running.
  /// - Throws: A ``TaskQueueError`` with the code ``TaskQueueError/Code/invalidArgument``.
  public func checkForm() throws(TaskQueueError) {
    switch self {
    case .insert(let record, _): try record.checkForm()
    case .succeed(_, let date, _), .cancel(_, let date, _), .restart(_, let date),
      .reschedule(_, let date), .extend(_, let date), .rebase(let date):
      try TaskQueueError.check(date, "a date")
    case .retry(_, let date, let retryCount, let failure):
      try TaskQueueError.check(date, "availableDate")
      try TaskQueueError.check(retryCount, "retryCount")
      try TaskQueueError.check(failure?.date, "the date of a failure")
    case .abandon(_, let failure, _), .park(_, let failure):
      try TaskQueueError.check(failure.date, "the date of a failure")
    case .prune(_, let date, let count, let now):
      try TaskQueueError.check(date, "endedBefore")
      try TaskQueueError.check(now, "now")
      try TaskQueueError.check(count, "keepingLatest")
    case .update(_, let update): try update.checkForm()
    case .release, .unpark, .pause, .resume, .remove: break
    }
  }
}
