public import SystemFoundation

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
/// All dates of a rule are whole seconds.
///
/// Rules with a time of day follow the clocks of their time zone. When the clocks go forward and
/// skip the time, the date is the first moment after the skipped times. When the clocks go back and
/// show the time twice, the date is the first of the two moments. ``every(_:)`` counts elapsed time
/// instead, and ``hourly(minute:in:)`` has one date in each hour of elapsed time.
///
/// A schedule stores only the identifier of the time zone, and every process that runs the queue
/// must know this identifier. <doc:RecurringTasks> says what an executable on Linux must link for
/// this.
public struct ScheduleRule: Sendable, Hashable {
  enum Kind: Sendable, Hashable {
    case every(seconds: Int)
    case hourly(minute: Int)
    case calendar(CalendarPattern)
  }

  let kind: Kind
  /// The zone whose clocks count; GMT for ``every(_:)``.
  let zone: TimeZone
  /// The rule as text, without its zone, as in `daily 02:30`; schedules store it.
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
  /// With ``every(_:)``, the result is the given date plus the interval. With the other rules, it
  /// is the same for all dates between two dates of the rule.
  ///
  /// - Complexity: The zone's offset is looked up a few times. For a line of cron with rare days,
  ///   at most some thousand days are checked.
  /// - Returns: The date; `nil` if it would be after the year 9999.
  public func next(after date: Date) -> Date? {
    let seconds = date.timeIntervalSince1970
    guard seconds.isFinite, Swift.abs(seconds) < Self.lastSecond else { return nil }
    let instant = Int(seconds.rounded(.down))
    let next: Int? =
      switch kind {
      case .every(let interval): instant + interval
      case .hourly(let minute): hourlyInstant(after: instant, minute: minute)
      case .calendar(let pattern): pattern.instant(after: instant, on: ZoneClock(zone: zone))
      }
    guard let next, Double(next) <= Self.lastSecond else { return nil }
    return Date(timeIntervalSince1970: Double(next))
  }

  /// The last second of the year 9999.
  private static var lastSecond: Double { 253_402_300_799 }

  /// Returns a date near `target`, but not before `date`, that can replace `date` as the start.
  ///
  /// After the returned date, the rule has the same dates if they are calculated from it as if they
  /// are calculated from `date`. With ``every(_:)``, it is a whole number of intervals after
  /// `date`.
  func equivalentStart(for date: Date, near target: Date) -> Date {
    guard case .every(let interval) = kind else { return max(date, target) }
    let distance = max(0, Int(target.timeIntervalSince(date)))
    return date + Double(distance / interval * interval)
  }

  /// Returns the first instant after `instant` at which the clocks show `minute` minutes after a
  /// full hour.
  private func hourlyInstant(after instant: Int, minute: Int) -> Int {
    let clock = ZoneClock(zone: zone)
    let found = hourlyInstantBeforeChange(from: instant + 1, minute: minute, on: clock)
    guard let change = clock.offsetChange(after: instant, through: found) else { return found }
    return hourlyInstantBeforeChange(from: change, minute: minute, on: clock)
  }

  /// Returns the first instant from `instant` on at which the clocks show `minute` minutes after a
  /// full hour, if the zone's offset does not change before then.
  private func hourlyInstantBeforeChange(
    from instant: Int,
    minute: Int,
    on clock: ZoneClock
  ) -> Int {
    let time = clock.time(at: instant) - minute * 60
    let sinceHour = time - time.flooredQuotient(3_600) * 3_600
    return sinceHour == 0 ? instant : instant + 3_600 - sinceHour
  }
}

extension ScheduleRule {
  /// A time of day, as in `.time(2, 30)`.
  public struct TimeOfDay: Sendable, Hashable, CustomStringConvertible {
    let hour, minute, second: Int

    /// Makes a time of day: an hour from 0 to 23, a minute and a second.
    public static func time(_ hour: Int, _ minute: Int, _ second: Int = 0) -> TimeOfDay {
      TimeOfDay(hour: hour, minute: minute, second: second)
    }

    /// The time of day as text, as in `02:30` or `02:30:15`.
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
  /// The raw value of Sunday is 0, as in a line of cron. The numbers that `Calendar` gives the days
  /// of the week are greater by one.
  public enum Weekday: Int, Sendable, Hashable, CaseIterable {
    /// A day of the week.
    case sunday, monday, tuesday, wednesday, thursday, friday, saturday

    /// The day's short English name, as in `Mon`.
    var text: String { ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"][rawValue] }
  }

  /// A rule with a fixed interval of elapsed time between its dates.
  ///
  /// The first date is one interval after the schedule was created. The interval does not depend on
  /// how long the task takes.
  ///
  /// - Parameter interval: the interval: at least one second, without a fraction of a second.
  /// - Returns: The rule.
  /// - Throws: a ``TaskQueueError`` with the code ``TaskQueueError/Code/invalidArgument``.
  public static func every(_ interval: Duration) throws(TaskQueueError) -> ScheduleRule {
    let (seconds, fraction) = interval.components
    guard seconds >= 1, fraction == 0, interval <= .longestStorable else {
      throw TaskQueueError(
        .invalidArgument,
        "a schedule can't have the interval \(interval); give a whole number of seconds from 1 to "
          + "100000000000"
      )
    }
    return ScheduleRule(.every(seconds: Int(seconds)), .gmt, "every \(seconds) s")
  }

  /// A rule with one date in each hour: when the clocks of a zone show these minutes.
  ///
  /// Each hour of elapsed time has one date, even when the clocks go forward or back by an hour.
  ///
  /// - Parameters:
  ///   - minute: the minutes after the full hour, from 0 to 59.
  ///   - zone: the zone whose clocks count; by default GMT. The zone matters only if its offset
  ///     from GMT is not a whole number of hours, as in India.
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

  /// A rule with one date on each day: when the clocks of a zone show a time.
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

  /// A rule with a date on some days of each week: when the clocks of a zone show a time.
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
        "a weekly schedule has no day of the week; give at least one day"
      )
    }
    let sorted = days.sorted { $0.rawValue < $1.rawValue }
    let pattern = CalendarPattern(time, on: sorted.reduce(0) { $0 | 1 << UInt8($1.rawValue) })
    let names = sorted.map(\.text).joined(separator: ",")
    return try ScheduleRule(.calendar(pattern), clocksOf: zone, "weekly \(names) \(time)")
  }

  /// A rule with the dates of a line of cron: `minute hour day-of-month month day-of-week`.
  ///
  /// A field is `*`, a number, a range such as `1-5`, `*` or a range with a step, such as `*/15` or
  /// `10-50/20`, or several of these with commas between them. Months and days of the week also
  /// have names, such as `jan` and `mon`; 0 and 7 are both Sunday. `@hourly`, `@daily`,
  /// `@midnight`, `@weekly`, `@monthly`, `@yearly` and `@annually` are supported.
  ///
  /// As in cron, if neither of the two fields for days begins with `*`, a day needs to match only
  /// one of them: `0 8 1 * mon` is 8:00 on the first day of each month and on each Monday.
  ///
  /// - Parameters:
  ///   - line: the five fields, without a command.
  ///   - zone: the zone whose clocks count.
  /// - Returns: The rule.
  /// - Throws: a ``TaskQueueError`` with the code ``TaskQueueError/Code/invalidArgument``, whose
  ///   message says what is wrong with which field of the line.
  public static func cron(
    _ line: String,
    in zone: TimeZone
  ) throws(TaskQueueError) -> ScheduleRule {
    let (pattern, text) = try CronLine.pattern(of: line)
    return try ScheduleRule(.calendar(pattern), clocksOf: zone, "cron \(text)")
  }
}

extension ScheduleRule {
  /// Makes a rule, unless its zone can't be made again from the zone's identifier.
  private init(_ kind: Kind, clocksOf zone: TimeZone, _ text: String) throws(TaskQueueError) {
    // Only a zone that was made from an offset may have an identifier that means another offset.
    // Such a zone has the same offset at all dates, so any date is good enough.
    let (date, stored) = (Date(timeIntervalSince1970: 0), TimeZone(identifier: zone.identifier))
    let offset = zone.secondsFromGMT(for: date)
    if let stored, stored.secondsFromGMT(for: date) != offset {
      throw TaskQueueError(
        .invalidArgument,
        "the time zone \(zone.identifier) is \(offset) s from GMT, but a schedule stores only the "
          + "identifier, which means another offset; give a zone whose offset is a whole number of "
          + "minutes"
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
  /// The rule as text, with its zone, as in `daily 02:30 (Europe/Berlin)`.
  public var description: String {
    timeZoneIdentifier.map { "\(text) (\($0))" } ?? text
  }
}

extension ScheduleRule {
  /// Makes a rule from its ``text`` and its zone.
  ///
  /// - Returns: The rule; `nil` if this version does not support it.
  init?(text: String, in zone: TimeZone) {
    let words = text.split(separator: " ")
    let rest = words.dropFirst()
    let made: ScheduleRule? =
      switch words.first {
      case "every": Self.everyRule(from: rest)
      case "hourly": rest.first.flatMap { Int($0) }.flatMap { try? .hourly(minute: $0, in: zone) }
      case "daily": rest.first.flatMap(Self.timeOfDay).flatMap { try? .daily(at: $0, in: zone) }
      case "weekly": Self.weeklyRule(from: rest, in: zone)
      case "cron": try? .cron(rest.joined(separator: " "), in: zone)
      default: nil
      }
    guard let made else { return nil }
    self = made
  }

  private static func everyRule(from words: ArraySlice<Substring>) -> ScheduleRule? {
    guard let seconds = words.first.flatMap({ Int($0) }) else { return nil }
    return try? .every(.seconds(seconds))
  }

  private static func weeklyRule(
    from words: ArraySlice<Substring>,
    in zone: TimeZone
  ) -> ScheduleRule? {
    guard words.count == 2, let names = words.first, let time = words.last.flatMap(timeOfDay) else {
      return nil
    }
    let days = names.split(separator: ",").map { name in
      Weekday.allCases.first { $0.text == name }
    }
    guard !days.contains(nil) else { return nil }
    return try? .weekly(on: Set(days.compactMap(\.self)), at: time, in: zone)
  }

  private static func timeOfDay(from text: Substring) -> TimeOfDay? {
    let numbers = text.split(separator: ":").compactMap { Int($0) }
    guard numbers.count == 2 || numbers.count == 3 else { return nil }
    return .time(numbers[0], numbers[1], numbers.count == 3 ? numbers[2] : 0)
  }
}

/// Parses lines of cron.
enum CronLine {
  /// One of the five fields, and the values that it allows.
  private struct Field {
    var name: String
    var range: ClosedRange<Int>
    var names: [String] = []
    /// The number that the first of `names` stands for.
    var firstName = 0
  }

  private static let fields = [
    Field(name: "minute", range: 0...59),
    Field(name: "hour", range: 0...23),
    Field(name: "day of the month", range: 1...31),
    Field(
      name: "month",
      range: 1...12,
      names: [
        "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
      ],
      firstName: 1
    ),
    Field(
      name: "day of the week",
      range: 0...7,
      names: ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]
    ),
  ]

  private static let shorthands = [
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
  ]

  /// Returns the pattern of a line, and the line in lower case with single spaces.
  static func pattern(of line: String) throws(TaskQueueError) -> (CalendarPattern, String) {
    // A line that was read from a file may include its line break.
    var words = line.split(whereSeparator: \.isWhitespace).map { $0.lowercased() }
    let text = words.joined(separator: " ")
    if words.count == 1, let meaning = shorthands[words[0]] {
      words = meaning.split(separator: " ").map(String.init)
    }
    guard words.count == fields.count else {
      throw invalidLineError(
        line,
        "it has \(words.count) fields; give five: minute, hour, day of the month, month and day of "
          + "the week, without a command"
      )
    }
    var sets: [UInt64] = []
    for (word, field) in zip(words, fields) {
      sets.append(try numbers(in: word, of: field, line: line))
    }
    let pattern = CalendarPattern(
      minutes: sets[0],
      hours: UInt32(sets[1]),
      days: UInt32(sets[2]),
      months: UInt16(sets[3]),
      // Both 0 and 7 stand for Sunday.
      weekdays: UInt8(sets[4] & 0x7F | sets[4] >> 7),
      matchesDayOrWeekday: !words[2].hasPrefix("*") && !words[4].hasPrefix("*")
    )
    guard pattern.hasDays else {
      throw invalidLineError(
        line,
        "none of its months has one of its days; change the days or the months"
      )
    }
    return (pattern, text)
  }

  private static func numbers(
    in word: String,
    of field: Field,
    line: String
  ) throws(TaskQueueError) -> UInt64 {
    var set: UInt64 = 0
    for part in word.split(separator: ",", omittingEmptySubsequences: false) {
      let (range, step) = try parseRange(part, of: field, line: line)
      for number in stride(from: range.lowerBound, through: range.upperBound, by: step) {
        set |= 1 << UInt64(number)
      }
    }
    return set
  }

  /// Parses a range such as `*`, `5`, `1-5`, `*/15` or `10-50/20`.
  private static func parseRange(
    _ part: Substring,
    of field: Field,
    line: String
  ) throws(TaskQueueError) -> (ClosedRange<Int>, step: Int) {
    let pieces = part.split(separator: "/", omittingEmptySubsequences: false)
    let ends = pieces[0].split(separator: "-", omittingEmptySubsequences: false)
    guard pieces.count <= 2, ends.count <= 2 else {
      throw invalidLineError(
        line,
        "'\(part)', for the \(field.name), has too many \(pieces.count > 2 ? "'/'" : "'-'"); give at "
          + "most one"
      )
    }
    let isAll = pieces[0] == "*"
    let low = isAll ? field.range.lowerBound : try parseNumber(ends[0], of: field, line: line)
    let high =
      isAll
      ? field.range.upperBound
      : ends.count == 2 ? try parseNumber(ends[1], of: field, line: line) : low
    guard low <= high else {
      throw invalidLineError(
        line,
        "the range '\(part)' of the \(field.name) ends before it begins; give the lower number first"
      )
    }
    guard pieces.count == 2 else { return (low...high, 1) }
    guard isAll || ends.count == 2 else {
      throw invalidLineError(
        line,
        "the step of '\(part)' needs a range before it; give one, as in "
          + "'\(low)-\(field.range.upperBound)/2'"
      )
    }
    guard let step = Int(pieces[1]), step >= 1 else {
      throw invalidLineError(
        line,
        "the step of '\(part)' is invalid; give a whole number of at least 1"
      )
    }
    return (low...high, step)
  }

  private static func parseNumber(
    _ text: Substring,
    of field: Field,
    line: String
  ) throws(TaskQueueError) -> Int {
    if let index = field.names.firstIndex(where: { $0 == text }) { return index + field.firstName }
    let isDigits = !text.isEmpty && text.utf8.allSatisfy { $0 >= 0x30 && $0 <= 0x39 }
    guard isDigits, let number = Int(text), field.range.contains(number) else {
      throw invalidLineError(
        line,
        "'\(text)' is not a valid \(field.name); give \(field.range.lowerBound) to "
          + "\(field.range.upperBound)"
          + (field.names.isEmpty ? "" : ", or a name such as '\(field.names[1])'")
      )
    }
    return number
  }

  private static func invalidLineError(_ line: String, _ problem: String) -> TaskQueueError {
    TaskQueueError(.invalidArgument, "the cron line '\(line)' is invalid: \(problem)")
  }
}
