/// What becomes of the dates of a schedule on which its task could not be performed.
///
/// A date is missed if no process ran the queue, if the queue was paused or busy, or if the
/// occurrence before was still under way, until the next date came.
public struct MissedOccurrences: Sendable, Hashable {
  enum Kind: Sendable, Hashable {
    case once(within: Duration?)
    case each(atMost: Int)
  }

  let kind: Kind

  /// The task is performed once for all dates that were missed, as the occurrence of the latest.
  ///
  /// - Parameter limit: how late that may be, a second or more. If the latest date is longer ago,
  ///   the task is not performed before the next date. By default, it is performed however late it
  ///   is.
  /// - Returns: The rule for missed dates.
  public static func once(within limit: Duration? = nil) -> MissedOccurrences {
    MissedOccurrences(kind: .once(within: limit))
  }

  /// The task is not performed for a date if it can't begin within a minute.
  public static var skip: MissedOccurrences { .once(within: .seconds(60)) }

  /// The task is performed for each date that was missed, one after another.
  ///
  /// - Parameter count: for how many of them, from 1 to 1,000; the latest count.
  /// - Returns: The rule for missed dates.
  public static func each(atMost count: Int) -> MissedOccurrences {
    MissedOccurrences(kind: .each(atMost: count))
  }

  func check() throws(TaskQueueError) {
    switch kind {
    case .once(let limit):
      try TaskQueueError.check(delay: limit, "the limit of missed: .once")
      guard let limit, limit < .seconds(1) else { return }
      throw TaskQueueError(
        .invalidArgument,
        "missed: .once(within: \(limit)) leaves no time to begin; give a second or more"
      )
    case .each(let count):
      guard (1...1_000).contains(count) else {
        throw TaskQueueError(
          .invalidArgument,
          "missed: .each(atMost: \(count)) makes no sense; give 1 to 1,000"
        )
      }
    }
  }
}
