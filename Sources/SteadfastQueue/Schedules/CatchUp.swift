import SystemFoundation

/// Decides which date of a schedule comes next, and what happens to those that have passed.
struct CatchUp: Equatable {
  /// The date of the next occurrence; `nil` if the rule has no further date.
  var next: Date?
  /// How many other dates the next occurrence covers.
  var missedCount = 0
  /// How many dates are skipped: the task is not performed, and no other occurrence covers them.
  var skippedCount = 0

  /// The maximum number of dates that are counted one by one.
  ///
  /// If there are more dates, the counts are lower limits.
  static let mostDates = 10_000

  /// The settings that decide, besides the dates, what happens next.
  struct Policy {
    var rule: ScheduleRule
    var missed: MissedOccurrences
    /// How much later than its date an occurrence may begin.
    var delay: Duration
  }
}

extension CatchUp {
  /// Returns whether the occurrence of a date may begin; if not, a later occurrence replaces it.
  static func mayBegin(_ date: Date, now: Date, _ policy: Policy) -> Bool {
    let limit = now - policy.delay / .seconds(1)
    switch policy.missed.kind {
    case .once(let most):
      if let most, limit - most / .seconds(1) > date { return false }
      return policy.rule.next(after: date).map { $0 > limit } ?? true
    case .each(let count):
      return Passed(after: date, through: limit, policy.rule, keeping: count).count < count
    }
  }

  /// Decides what follows the occurrence of a date.
  ///
  /// `wasHandled` says whether that occurrence has ended or is running; if not, it was missed, too.
  init(after date: Date, wasHandled: Bool, now: Date, _ policy: Policy) {
    let limit = now - policy.delay / .seconds(1)
    let most = if case .each(let count) = policy.missed.kind { count } else { 1 }
    let passed = Passed(after: date, through: limit, policy.rule, keeping: most)
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

  /// The dates of a rule in a period.
  private struct Passed {
    /// The number of dates in the period; a lower limit if there are more than
    /// ``CatchUp/mostDates``.
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
        // Removes many dates at once, so that the average time for each date is constant.
        if latest.count >= 2 * most { latest.removeFirst(latest.count - most) }
        next = rule.next(after: date)
        if count == CatchUp.mostDates {
          next = Self.dateNearEnd(from: date, to: end, rule, most) ?? next
        }
      }
      if latest.count > most { latest.removeFirst(latest.count - most) }
    }

    /// Returns a date from which at least `most` dates of the rule remain until the end of the
    /// period; `nil` if the search finds none.
    private static func dateNearEnd(
      from date: Date,
      to end: Date,
      _ rule: ScheduleRule,
      _ most: Int
    ) -> Date? {
      var distance = 60.0
      while end - distance > date {
        let start = rule.restart(near: end - distance, from: date)
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

/// What happens to the dates of a schedule on which its task could not be performed.
///
/// A date is missed if, until the next date, no process ran the queue, the queue was paused or
/// busy, or the previous occurrence was still running.
public struct MissedOccurrences: Sendable, Hashable {
  enum Kind: Sendable, Hashable {
    case once(within: Duration?)
    case each(atMost: Int)
  }

  let kind: Kind

  /// The task is performed once for all missed dates, as the occurrence of the latest one.
  ///
  /// - Parameter limit: the maximum lateness, a second or more. If the latest missed date is longer
  ///   ago than that, the task is not performed before the next date. By default, the lateness is
  ///   unlimited.
  /// - Returns: The rule for missed dates.
  public static func once(within limit: Duration? = nil) -> MissedOccurrences {
    MissedOccurrences(kind: .once(within: limit))
  }

  /// A date is skipped if its task can't begin within a minute.
  public static var skip: MissedOccurrences { .once(within: .seconds(60)) }

  /// The task is performed for each missed date, one after another.
  ///
  /// - Parameter count: the maximum number of missed dates for which the task is performed, from 1
  ///   to 1,000; earlier missed dates are skipped.
  /// - Returns: The rule for missed dates.
  public static func each(atMost count: Int) -> MissedOccurrences {
    MissedOccurrences(kind: .each(atMost: count))
  }

  /// Throws if the limit or the count makes no sense.
  func check() throws(TaskQueueError) {
    switch kind {
    case .once(let limit):
      try TaskQueueError.check(delay: limit, "the limit of missed: .once")
      guard let limit, limit < .seconds(1) else { return }
      throw TaskQueueError(
        .invalidArgument,
        "missed: .once(within: \(limit)) leaves a task no time to begin; give a second or more"
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
