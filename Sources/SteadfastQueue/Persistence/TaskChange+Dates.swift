#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// Checks for dates and durations that not every store can hold.
extension TaskChange {
  func checkDates() throws(TaskQueueError) {
    switch self {
    case .insert(let record, _): try record.checkDates()
    case .succeed(_, let date, _), .cancel(_, let date, _):
      try TaskQueueError.check(storable: date, "the date of an end")
    case .retry(_, let date, _, let failure, let origin):
      try TaskQueueError.check(storable: date, "availableDate")
      try TaskQueueError.check(storable: failure?.date, "the date of a failure")
      try TaskQueueError.check(storable: origin, "countedFrom")
    case .abandon(_, let failure, _), .park(_, let failure):
      try TaskQueueError.check(storable: failure.date, "the date of a failure")
    case .restart(_, let date, _): try TaskQueueError.check(storable: date, "availableDate")
    case .reschedule(_, let date, let origin):
      try TaskQueueError.check(storable: date, "availableDate")
      try TaskQueueError.check(storable: origin, "countedFrom")
    case .update(_, let update): try update.checkDates()
    case .suspend(_, let date, _, let origin):
      try TaskQueueError.check(storable: date, "the date of a suspension")
      try TaskQueueError.check(storable: origin, "countedFrom")
    case .extend(_, let duration):
      try TaskQueueError.check(storable: duration, "the duration of a lease")
    case .prune(_, let date, _, let now, _):
      try TaskQueueError.check(storable: date, "endedBefore")
      try TaskQueueError.check(storable: now, "now")
    case .rebase(let date): try TaskQueueError.check(storable: date, "the date of a rebase")
    case .release, .unpark, .pause, .resume, .remove, .remember, .complete, .setValue: break
    }
  }
}

extension TaskRecord {
  func checkDates() throws(TaskQueueError) {
    try TaskQueueError.check(storable: createdDate, "createdDate")
    try TaskQueueError.check(storable: availableDate, "availableDate")
    try TaskQueueError.check(storable: finishedDate, "finishedDate")
    if hasFailureState {
      try TaskQueueError.check(storable: failedDate, "failedDate")
      try TaskQueueError.check(storable: explicitOrigin, "countedFrom")
      for failure in earlierFailures {
        try TaskQueueError.check(storable: failure.date, "the date of an earlier failure")
      }
    }
    guard hasExtras else { return }
    try TaskQueueError.check(storable: expiryDate, "expiryDate")
    try TaskQueueError.check(storable: timeLimit, "timeLimit")
    try TaskQueueError.check(storable: uniqueUntil, "uniqueUntil")
    try TaskQueueError.check(storable: latestDate, "latestDate")
  }
}

extension TaskUpdate {
  func checkDates() throws(TaskQueueError) {
    try TaskQueueError.check(storable: expiryDate, "expiryDate")
    try TaskQueueError.check(storable: timeLimit, "timeLimit")
  }
}

extension TaskQueueError {
  static func check(storable date: Date?, _ name: @autoclosure () -> String) throws(TaskQueueError)
  {
    guard let date, !date.isStorable else { return }
    throw TaskQueueError(
      .invalidArgument,
      "\(name()) is \(date.timeIntervalSince1970) seconds after 1970; give a date of the years 1 to "
        + "9999"
    )
  }

  static func check(storable duration: Duration?, _ name: @autoclosure () -> String)
    throws(TaskQueueError)
  {
    guard let duration, duration > .longestStorable else { return }
    throw TaskQueueError(
      .invalidArgument,
      "\(name()) is \(duration); give at most 100000000000 seconds, some 3000 years"
    )
  }
}

extension Duration {
  /// The longest duration that is chosen for a task or a lease.
  ///
  /// A date of the next 4,000 years plus this duration is a date that every store can hold.
  static var longestStorable: Duration { .seconds(100_000_000_000) }

  /// The whole microseconds, rounded up: a positive duration has at least one.
  ///
  /// They are at most those of the longest duration that can be stored, whatever its sign.
  package var microseconds: Int64 {
    let storable = max(.zero - .longestStorable, min(self, .longestStorable))
    let (seconds, attoseconds) = storable.components
    let (whole, rest) = attoseconds.quotientAndRemainder(dividingBy: 1_000_000_000_000)
    return seconds * 1_000_000 + whole + (rest > 0 ? 1 : 0)
  }
}
