#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

extension TaskChange {
  /// Throws if the change has a value that not every store can hold.
  ///
  /// Stores call it before they store a change. A new task must not be running, and counts must not
  /// be negative. No text has a NUL (U+0000): neither names, keys, tags and conditions, nor the
  /// texts of failures.
  ///
  /// Dates are not before `Date.distantPast`, at the beginning of the year 1, and not after the
  /// year 9999. A time limit and the duration of a lease are at most 100,000,000,000 seconds, some
  /// 3,000 years. So text in ISO 8601, the types of databases, and 64 bits of microseconds can all
  /// hold them.
  ///
  /// The name of a value has 1 to 1,024 bytes of UTF-8, and a value at most 65,536 bytes; one that
  /// a task remembers has at most 131,072.
  ///
  /// What was stored before, by this version or an earlier one, is not checked again.
  /// - Throws: A ``TaskQueueError`` with the code ``TaskQueueError/Code/invalidArgument``.
  public func checkForm() throws(TaskQueueError) {
    // Most changes are these.
    if case .insert(let record, _) = self, !record.hasExtras { return try record.checkForm() }
    try checkReadable()
    try checkTexts()
    try checkDates()
  }

  /// Throws if the change makes no sense, even in a file that an earlier version has written.
  func checkReadable() throws(TaskQueueError) {
    switch self {
    case .insert(let record, let policy):
      try record.checkReadable()
      guard policy == .replace, let dependencies = record.presentDependencies,
        !dependencies.tasks.isEmpty || dependencies.follower != nil
      else { break }
      throw TaskQueueError(
        .invalidArgument,
        "the new task \(record.id) waits for others, or is of a batch, so it can't replace another "
          + "one"
      )
    case .succeed(_, let date, _), .cancel(_, let date, _), .restart(_, let date, _),
      .rebase(let date):
      try TaskQueueError.check(date, "a date")
    case .reschedule(_, let date, let origin):
      try TaskQueueError.check(date, "a date")
      try TaskQueueError.check(origin, "countedFrom")
    case .suspend(_, let date, let names, let origin):
      try TaskQueueError.check(date, "a date")
      try TaskQueueError.check(origin, "countedFrom")
      for name in names { try TaskQueueError.check(valueNamed: name) }
    case .retry(_, let date, let retryCount, let failure, let origin):
      try TaskQueueError.check(date, "availableDate")
      try TaskQueueError.check(origin, "countedFrom")
      try TaskQueueError.check(retryCount, "retryCount")
      try TaskQueueError.check(failure?.date, "the date of a failure")
    case .abandon(_, let failure, _), .park(_, let failure):
      try TaskQueueError.check(failure.date, "the date of a failure")
    case .prune(_, let date, let count, let now, _):
      try TaskQueueError.check(date, "endedBefore")
      try TaskQueueError.check(now, "now")
      try TaskQueueError.check(count, "keepingLatest")
    case .extend(_, let duration):
      guard duration < .zero else { break }
      throw TaskQueueError(
        .invalidArgument,
        "the duration of a lease is \(duration); give zero or more"
      )
    case .update(_, let update): try update.checkReadable()
    case .setValue(let name, let old, let new): try TaskQueueError.check(valueNamed: name, old, new)
    case .remember(_, let name, let value):
      try TaskQueueError.check(rememberedUnder: name, value)
    case .complete(_, let name, let value):
      try TaskQueueError.check(rememberedUnder: name, value)
      guard value.isEmpty else { break }
      throw TaskQueueError(
        .invalidArgument,
        "the completion '\(name)' has no bytes, so the value would stay open; give at least one"
      )
    case .release, .unpark, .pause, .resume, .remove: break
    }
  }
}
