#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
public import Foundation
#endif

/// When a recurring task is performed: a rule that gives the next date after any date.
///
/// ```swift
/// let rules: [ScheduleRule] = [
///   try .every(.seconds(900)),
///   try .daily(at: .time(2, 30), in: berlin),
///   try .weekly(on: [.monday], at: .time(6, 0), in: berlin),
///   try .cron("30 8 * * 1-5", in: berlin),
/// ]
/// ```
///
/// A rule is a value: it reads no clock. All dates are whole seconds.
///
/// The rules with a time of day are those of a clock on the wall. When the clocks go forward and
/// skip the time, the date is the first moment after that. When they go back and show the time
/// twice, it is the first of the two moments. ``every(_:)`` counts elapsed time instead, and
/// ``hourly(minute:in:)`` gives each real hour.
///
/// Give a time zone that can be made again from its identifier, in every process that runs the
/// queue: <doc:RecurringTasks> says what an executable on Linux links for that.
public struct ScheduleRule: Sendable, Hashable {
  enum Kind: Sendable, Hashable {
    case every(seconds: Int)
    case hourly(minute: Int)
    case calendar(CalendarPattern)
  }

  let kind: Kind
  /// The zone whose clocks count; GMT for ``every(_:)``.
  let zone: TimeZone
  /// What the rule says, without its zone, as in `daily 02:30`.
  let text: String

  init(_ kind: Kind, _ zone: TimeZone, _ text: String) {
    self.kind = kind
    self.zone = zone
    self.text = text
  }

  /// The identifier of the zone whose clocks count; `nil` for ``every(_:)``.
  public var timeZoneIdentifier: String? {
    if case .every = kind { nil } else { zone.identifier }
  }

  /// Returns the first date of the rule after another date.
  ///
  /// With ``every(_:)``, this is the given date and the interval. With the other rules, it is the
  /// same date for all dates in between.
  ///
  /// - Complexity: A few offsets of the zone. For a line of cron that names rare days, at most some
  ///   thousand days are looked at.
  /// - Returns: The date; `nil` if it would be after the year 9999.
  public func next(after date: Date) -> Date? {
    let seconds = date.timeIntervalSince1970
    guard seconds.isFinite, Swift.abs(seconds) < Self.lastSecond else { return nil }
    let instant = Int(seconds.rounded(.down))
    let next: Int? =
      switch kind {
      case .every(let interval): instant + interval
      case .hourly(let minute): hour(after: instant, minute)
      case .calendar(let pattern): pattern.instant(after: instant, on: ZoneClock(zone: zone))
      }
    guard let next, Double(next) <= Self.lastSecond else { return nil }
    return Date(timeIntervalSince1970: Double(next))
  }

  /// The last second of the year 9999.
  private static var lastSecond: Double { 253_402_300_799 }

  /// Returns a date from which the rule goes on as from `date`: `target`, or shortly before it.
  func restart(near target: Date, from date: Date) -> Date {
    guard case .every(let interval) = kind else { return max(date, target) }
    let distance = max(0, Int(target.timeIntervalSince(date)))
    return date + Double(distance / interval * interval)
  }

  /// Returns the first instant after another one at which the clocks show a full hour and these
  /// minutes.
  private func hour(after instant: Int, _ minute: Int) -> Int {
    let clock = ZoneClock(zone: zone)
    let found = fullHour(from: instant + 1, minute, clock)
    guard let change = clock.change(after: instant, through: found) else { return found }
    return fullHour(from: change, minute, clock)
  }

  /// Returns the first such instant, this one or a later one, if the offset stays as it is.
  private func fullHour(from instant: Int, _ minute: Int, _ clock: ZoneClock) -> Int {
    let time = clock.time(at: instant) - minute * 60
    let sinceHour = time - time.flooredQuotient(3_600) * 3_600
    return sinceHour == 0 ? instant : instant + 3_600 - sinceHour
  }
}
