import SystemFoundation

/// The decision about which date of a schedule comes next, and about the dates that have passed.
struct CatchUp: Equatable {
  /// The date of the next occurrence; `nil` if the rule has no further date.
  var next: Date?
  /// The number of other dates for which the task is not performed, but which the next occurrence
  /// covers.
  var missedCount = 0
  /// The number of dates for which the task is not performed, and which no other occurrence covers.
  var skippedCount = 0

  /// The maximum number of dates that are counted.
  ///
  /// If there are more dates, the counts are lower than the number of dates.
  static let maxCountedDates = 10_000

  /// The settings of a schedule on which the decision depends.
  struct Policy {
    var rule: ScheduleRule
    var missed: MissedOccurrences
    /// The time between an occurrence's date and the date at which it becomes available.
    var delay: Duration
  }
}

extension CatchUp {
  /// Returns whether the occurrence for a date may still begin; if not, a later occurrence replaces
  /// it.
  static func mayBegin(_ date: Date, now: Date, _ policy: Policy) -> Bool {
    let limit = now - policy.delay / .seconds(1)
    switch policy.missed.kind {
    case .once(let most):
      if let most, limit - most / .seconds(1) > date { return false }
      return policy.rule.next(after: date).map { $0 > limit } ?? true
    case .each(let count):
      return PassedDates(after: date, through: limit, policy.rule, keeping: count).count < count
    }
  }

  /// Decides what follows the occurrence for a date.
  ///
  /// If `wasHandled`, that occurrence begins, or was cancelled or removed; if not, its date was
  /// missed, too.
  init(after date: Date, wasHandled: Bool, now: Date, _ policy: Policy) {
    let limit = now - policy.delay / .seconds(1)
    let most = if case .each(let count) = policy.missed.kind { count } else { 1 }
    let passed = PassedDates(after: date, through: limit, policy.rule, keeping: most)
    let total = passed.count + (wasHandled ? 0 : 1)
    switch policy.missed.kind {
    case .once(let most):
      if let latest = passed.latest.last,
        most.map({ latest >= limit - $0 / .seconds(1) }) ?? true
      {
        next = latest
        missedCount = total - 1
      } else {
        next = passed.next
        skippedCount = total
      }
    case .each:
      next = passed.latest.first ?? passed.next
      skippedCount = total - passed.latest.count
    }
  }

  /// The dates of a rule in a period that has passed.
  private struct PassedDates {
    /// The number of dates in the period; if there are more than ``CatchUp/maxCountedDates``, not
    /// all of them are counted.
    var count = 0
    /// The latest dates in the period, in order.
    var latest: [Date] = []
    /// The first date after the period.
    var next: Date?

    init(after start: Date, through end: Date, _ rule: ScheduleRule, keeping most: Int) {
      next = rule.next(after: start)
      while let date = next, date <= end {
        count += 1
        latest.append(date)
        // Remove many dates at once, so that removing takes constant time per date on average.
        if latest.count >= 2 * most { latest.removeFirst(latest.count - most) }
        next = rule.next(after: date)
        if count == CatchUp.maxCountedDates {
          next = Self.dateNearEnd(from: date, to: end, rule, most) ?? next
        }
      }
      if latest.count > most { latest.removeFirst(latest.count - most) }
    }

    /// Returns a late date of the rule from which at least `most` dates remain until the end of the
    /// period; `nil` if the search finds none.
    private static func dateNearEnd(
      from date: Date,
      to end: Date,
      _ rule: ScheduleRule,
      _ most: Int
    ) -> Date? {
      var distance = 60.0
      while end - distance > date {
        let start = rule.equivalentStart(for: date, near: end - distance)
        var next: Date? = start
        var found: Date?
        for _ in 0..<most {
          next = next.flatMap(rule.next)
          found = found ?? next
        }
        if let found, let next, next <= end { return found }
        distance *= 2
      }
      return nil
    }
  }
}

/// What happens to the missed dates of a schedule: those at which its task could not be performed.
///
/// A date is missed if, until the next date, no process ran the queue, the queue was paused or
/// busy, or the previous occurrence was still running.
public struct MissedOccurrences: Sendable, Hashable {
  enum Kind: Sendable, Hashable {
    case once(within: Duration?)
    case each(atMost: Int)
  }

  let kind: Kind

  /// The task is performed once for all missed dates, as the occurrence for the latest of them.
  ///
  /// - Parameter limit: the maximum lateness, a second or more. If the latest missed date is longer
  ///   ago than this limit, the task is not performed before the next date. By default, there is no
  ///   limit.
  /// - Returns: The rule for missed dates.
  public static func once(within limit: Duration? = nil) -> MissedOccurrences {
    MissedOccurrences(kind: .once(within: limit))
  }

  /// The task is not performed for a date if it can't start within a minute of the date.
  public static var skip: MissedOccurrences { .once(within: .seconds(60)) }

  /// The task is performed for each missed date, one after another.
  ///
  /// - Parameter count: the maximum number of missed dates for which the task is performed, from 1
  ///   to 1,000. If there are more missed dates, the task is performed for the latest of them.
  /// - Returns: The rule for missed dates.
  public static func each(atMost count: Int) -> MissedOccurrences {
    MissedOccurrences(kind: .each(atMost: count))
  }

  /// Throws if the limit or the count is out of range.
  func check() throws(TaskQueueError) {
    switch kind {
    case .once(let limit):
      try TaskQueueError.check(delay: limit, "the limit of missed: .once(within:)")
      guard let limit, limit < .seconds(1) else { return }
      throw TaskQueueError(
        .invalidArgument,
        "the limit of missed: .once(within: \(limit)) is too short; give a second or more"
      )
    case .each(let count):
      guard (1...1_000).contains(count) else {
        throw TaskQueueError(
          .invalidArgument,
          "the count of missed: .each(atMost: \(count)) is out of range; give 1 to 1,000"
        )
      }
    }
  }
}
