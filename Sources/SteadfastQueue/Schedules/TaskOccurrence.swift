#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
public import Foundation
#endif

/// What a handler knows of the date for which it performs a recurring task.
public struct TaskOccurrence: Sendable, Hashable {
  /// The date of the schedule's rule.
  ///
  /// The task may begin later: because of a `spread`, because the queue did not run, or because
  /// this is a retry. Use this date, and not the clock's, to decide which day a report is for.
  public let date: Date
  /// Whether the attempt began more than a minute after the date, and after the schedule's spread.
  ///
  /// The queue did not run, say, or was busy, or this is a retry.
  public let isLate: Bool
  /// How many earlier dates were missed, for which this occurrence stands as well.
  ///
  /// It is 0 unless the schedule says `missed: .once`, and at most some 10,000. An occurrence of a
  /// schedule whose occurrences may overlap knows it in its first attempt only.
  public let missedCount: Int

  /// How late an attempt may begin without being late.
  private static let tolerance = 60.0

  init(date: Date, delay: Duration, missedCount: Int, now: Date) {
    self.date = date
    isLate = now > date + delay / .seconds(1) + Self.tolerance
    self.missedCount = missedCount
  }
}
