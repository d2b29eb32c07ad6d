#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

extension TaskChange {
  /// Throws if the change holds what no store can keep; for stores, before they keep it.
  ///
  /// Dates must be finite, counts must not be negative, and a new task must not be running.
  /// - Throws: a ``TaskQueueError`` with the code ``TaskQueueError/Code/invalidArgument``.
  public func checkForm() throws(TaskQueueError) {
    switch self {
    case .insert(let record, _): try record.checkForm()
    case .succeed(_, let date, _), .cancel(_, let date, _), .restart(_, let date),
      .reschedule(_, let date), .extend(_, let date), .rebase(let date):
      try Self.check(date, "a date")
    case .retry(_, let date, let retryCount, let failure):
      try Self.check(date, "availableDate")
      try Self.check(retryCount, "retryCount")
      try Self.check(failure?.date, "the date of a failure")
    case .abandon(_, let failure, _), .park(_, let failure):
      try Self.check(failure.date, "the date of a failure")
    case .prune(_, let date, let count):
      try Self.check(date, "endedBefore")
      try Self.check(count, "keepingLatest")
    case .update(_, let update): try update.checkForm()
    case .release, .unpark, .pause, .resume, .remove: break
    }
  }

  static func check(_ date: Date?, _ name: String) throws(TaskQueueError) {
    guard let seconds = date?.timeIntervalSince1970, !seconds.isFinite else { return }
    throw TaskQueueError(.invalidArgument, "\(name) is \(seconds); give a finite date")
  }

  static func check(_ limit: RetryLimit, _ name: String) throws(TaskQueueError) {
    guard case .atMost(let count) = limit, count < 0 else { return }
    throw TaskQueueError(
      .invalidArgument,
      "\(name) is \(count); give 0 or more, or .alwaysRetry for no limit"
    )
  }

  static func check(timeLimit: Duration?, _ name: String) throws(TaskQueueError) {
    // Longer than the age of the universe is more than can be written.
    guard let timeLimit, timeLimit <= .zero || timeLimit > .seconds(1 << 60) else { return }
    throw TaskQueueError(
      .invalidArgument,
      "\(name) is \(timeLimit); give more than zero, or none for any time"
    )
  }

  fileprivate static func check(_ count: Int?, _ name: String) throws(TaskQueueError) {
    guard let count, count < 0 else { return }
    throw TaskQueueError(.invalidArgument, "\(name) is \(count); give 0 or more")
  }
}

extension TaskRecord {
  /// As ``TaskChange/checkForm()`` for the insertion of the task.
  func checkForm() throws(TaskQueueError) {
    guard state != .running else {
      throw TaskQueueError(.invalidArgument, "the new task \(id) is running; a new task waits")
    }
    try TaskChange.check(createdDate, "createdDate")
    try TaskChange.check(availableDate, "availableDate")
    try TaskChange.check(finishedDate, "finishedDate")
    try TaskChange.check(maxRetries, "maxRetries")
    if hasTroubles { try checkTroubles() }
    if hasExtras {
      try TaskChange.check(expiryDate, "expiryDate")
      try TaskChange.check(timeLimit: timeLimit, "timeLimit")
    }
  }

  private func checkTroubles() throws(TaskQueueError) {
    try TaskChange.check(failedDate, "failedDate")
    for failure in earlierFailures {
      try TaskChange.check(failure.date, "the date of an earlier failure")
    }
    try TaskChange.check(retryCount, "retryCount")
    try TaskChange.check(interruptionCount, "interruptionCount")
  }
}
