#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
public import Foundation
#endif

extension ScheduleRule {
  /// A time of day, as in `.time(2, 30)`.
  public struct TimeOfDay: Sendable, Hashable, CustomStringConvertible {
    let hour, minute, second: Int

    /// Makes a time of day: an hour from 0 to 23, a minute and a second.
    public static func time(_ hour: Int, _ minute: Int, _ second: Int = 0) -> TimeOfDay {
      TimeOfDay(hour: hour, minute: minute, second: second)
    }

    /// As in `02:30`, or `02:30:15`.
    public var description: String {
      let parts = second == 0 ? [hour, minute] : [hour, minute, second]
      return parts.map { $0 < 10 ? "0\($0)" : "\($0)" }.joined(separator: ":")
    }

    fileprivate func check() throws(TaskQueueError) {
      guard (0..<24).contains(hour), (0..<60).contains(minute), (0..<60).contains(second) else {
        throw TaskQueueError(
          .invalidArgument,
          "the time of day \(self) does not exist; give an hour from 0 to 23, and a minute and a "
            + "second from 0 to 59"
        )
      }
    }
  }

  /// A day of the week.
  ///
  /// Its raw value counts from Sunday, which is 0, as in a line of cron. The weekdays of `Calendar`
  /// are greater by one.
  public enum Weekday: Int, Sendable, Hashable, CaseIterable {
    /// A day of the week.
    case sunday, monday, tuesday, wednesday, thursday, friday, saturday

    /// As in `Mon`.
    var text: String { ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"][rawValue] }
  }

  /// Each time that this much time has passed, whatever clocks on the wall show.
  ///
  /// The first date is one interval after the schedule was made. After that, dates are whole
  /// intervals apart, however long the task takes.
  ///
  /// - Parameter interval: whole seconds, at least one.
  /// - Returns: The rule.
  /// - Throws: a ``TaskQueueError`` with the code ``TaskQueueError/Code/invalidArgument``.
  public static func every(_ interval: Duration) throws(TaskQueueError) -> ScheduleRule {
    let (seconds, fraction) = interval.components
    guard seconds >= 1, fraction == 0, interval <= .longestStorable else {
      throw TaskQueueError(
        .invalidArgument,
        "a schedule can't have the interval \(interval); give whole seconds, at least one and at most "
          + "100000000000"
      )
    }
    return ScheduleRule(.every(seconds: Int(seconds)), .gmt, "every \(seconds) s")
  }

  /// Each hour, when the clocks of a zone show these minutes.
  ///
  /// Each real hour has one, also when the clocks go forward or back by an hour.
  ///
  /// - Parameters:
  ///   - minute: the minutes after the full hour, from 0 to 59.
  ///   - zone: the zone whose clocks count; by default GMT. Zones differ in it if they are not
  ///     whole hours from GMT, as India is.
  /// - Returns: The rule.
  /// - Throws: a ``TaskQueueError`` with the code ``TaskQueueError/Code/invalidArgument``.
  public static func hourly(
    minute: Int,
    in zone: TimeZone = .gmt
  ) throws(TaskQueueError) -> ScheduleRule {
    guard (0..<60).contains(minute) else {
      throw TaskQueueError(
        .invalidArgument,
        "no hour has a minute \(minute); give a minute from 0 to 59"
      )
    }
    return try ScheduleRule(.hourly(minute: minute), clocksOf: zone, "hourly \(minute)")
  }

  /// Each day, when the clocks of a zone show a time.
  ///
  /// - Parameters:
  ///   - time: the time of day, as in `.time(2, 30)`.
  ///   - zone: the zone whose clocks count.
  /// - Returns: The rule.
  /// - Throws: a ``TaskQueueError`` with the code ``TaskQueueError/Code/invalidArgument``.
  public static func daily(
    at time: TimeOfDay,
    in zone: TimeZone
  ) throws(TaskQueueError) -> ScheduleRule {
    try time.check()
    let pattern = CalendarPattern(time, on: CalendarPattern.allWeekdays)
    return try ScheduleRule(.calendar(pattern), clocksOf: zone, "daily \(time)")
  }

  /// Each week on some days, when the clocks of a zone show a time.
  ///
  /// - Parameters:
  ///   - days: the days of the week; at least one.
  ///   - time: the time of day, as in `.time(6, 0)`.
  ///   - zone: the zone whose clocks count.
  /// - Returns: The rule.
  /// - Throws: a ``TaskQueueError`` with the code ``TaskQueueError/Code/invalidArgument``.
  public static func weekly(
    on days: Set<Weekday>,
    at time: TimeOfDay,
    in zone: TimeZone
  ) throws(TaskQueueError) -> ScheduleRule {
    try time.check()
    guard !days.isEmpty else {
      throw TaskQueueError(
        .invalidArgument,
        "a weekly schedule has no day of the week; give at least one"
      )
    }
    let sorted = days.sorted { $0.rawValue < $1.rawValue }
    let pattern = CalendarPattern(time, on: sorted.reduce(0) { $0 | 1 << UInt8($1.rawValue) })
    let names = sorted.map(\.text).joined(separator: ",")
    return try ScheduleRule(.calendar(pattern), clocksOf: zone, "weekly \(names) \(time)")
  }

  /// The dates of a line of cron: `minute hour day-of-month month day-of-week`.
  ///
  /// A field is `*`, a number, a range as in `1-5`, either of the last two with a step as in `*/15`
  /// or `10-50/20`, or several of these with commas between them. Months and days of the week have
  /// names as well, as in `jan` and `mon`; 0 and 7 are both Sunday. `@hourly`, `@daily`,
  /// `@midnight`, `@weekly`, `@monthly`, `@yearly` and `@annually` are known.
  ///
  /// If neither the day of the month nor the day of the week begins with `*`, a day needs to match
  /// only one of the two, as in cron: `0 8 1 * mon` is 8:00 on each first of a month and on each
  /// Monday.
  ///
  /// - Parameters:
  ///   - line: the five fields, without a command.
  ///   - zone: the zone whose clocks count.
  /// - Returns: The rule.
  /// - Throws: a ``TaskQueueError`` with the code ``TaskQueueError/Code/invalidArgument``, which
  ///   names the field and what is wrong with it.
  public static func cron(
    _ line: String,
    in zone: TimeZone
  ) throws(TaskQueueError) -> ScheduleRule {
    let (pattern, text) = try CronLine.pattern(of: line)
    return try ScheduleRule(.calendar(pattern), clocksOf: zone, "cron \(text)")
  }
}

extension ScheduleRule {
  /// Makes a rule whose zone is stored by its identifier.
  private init(_ kind: Kind, clocksOf zone: TimeZone, _ text: String) throws(TaskQueueError) {
    // A zone that differs from what its identifier says has a constant offset.
    let (date, stored) = (Date(timeIntervalSince1970: 0), TimeZone(identifier: zone.identifier))
    let offset = zone.secondsFromGMT(for: date)
    if let stored, stored.secondsFromGMT(for: date) != offset {
      throw TaskQueueError(
        .invalidArgument,
        "the time zone \(zone.identifier) is \(offset) s from GMT, which its identifier does not say; "
          + "give one of whole minutes"
      )
    }
    self.init(kind, zone, text)
  }
}

extension CalendarPattern {
  fileprivate init(_ time: ScheduleRule.TimeOfDay, on weekdays: UInt8) {
    self.init(
      minutes: 1 << UInt64(time.minute),
      hours: 1 << UInt32(time.hour),
      days: Self.allDays,
      months: Self.allMonths,
      weekdays: weekdays,
      second: time.second
    )
  }
}

extension ScheduleRule: CustomStringConvertible {
  /// As in `daily 02:30 (Europe/Berlin)`.
  public var description: String {
    timeZoneIdentifier.map { "\(text) (\($0))" } ?? text
  }
}
