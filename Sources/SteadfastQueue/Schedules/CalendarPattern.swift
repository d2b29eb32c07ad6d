/// Days and times of day, as a line of cron gives them.
///
/// Sets of numbers are bits: bit 5 of ``minutes`` says that the pattern has minute 5.
struct CalendarPattern: Sendable, Hashable {
  var minutes: UInt64
  var hours: UInt32
  /// Days of the month, from 1 to 31.
  var days: UInt32
  /// Months, from 1 to 12.
  var months: UInt16
  /// Days of the week, from 0 for Sunday to 6.
  var weekdays: UInt8
  /// Whether a day needs to be in one of ``days`` and ``weekdays`` only, instead of in both.
  var needsOneOfBoth = false
  var second = 0

  static let allDays: UInt32 = 0xFFFF_FFFE
  static let allMonths: UInt16 = 0x1FFE
  static let allWeekdays: UInt8 = 0x7F

  /// How many days to look at before there is certainly one of the pattern.
  ///
  /// There may be eight years from a 29 February to the next. One that must be a certain day of the
  /// week takes 40 years at most, as from 2072 to 2112.
  private static let mostDays = 41 * 366

  /// Whether any day is one of the pattern.
  var hasDays: Bool {
    if needsOneOfBoth { return true }
    return (1...12).contains { month in
      months & (1 << UInt16(month)) != 0
        && (1...CivilDate.mostDays(ofMonth: month)).contains { days & (1 << UInt32($0)) != 0 }
    }
  }

  /// Returns the first instant of the pattern after another one.
  ///
  /// Instants are seconds since 1970, in GMT. Whole months are skipped, and hours within a day. So
  /// this looks at two or three days and times mostly, and at some thousand days at most.
  /// - Returns: The instant; `nil` if the pattern has no days.
  func instant(after instant: Int, on clock: ZoneClock) -> Int? {
    guard hasDays else { return nil }
    let now = clock.time(at: instant)
    let today = now.flooredQuotient(86_400)
    var date = CivilDate(dayNumber: today)
    var day = today
    while day < today + Self.mostDays {
      guard months & (1 << UInt16(date.month)) != 0 else {
        date = date.firstOfNextMonth
        day = date.dayNumber
        continue
      }
      if matches(date, day) {
        // The times of this day before now have passed. So have those that come a second time.
        let start = day == today ? (now - today * 86_400) / 60 : 0
        if let found = self.instant(onDay: day, fromMinute: start, after: instant, clock) {
          return found
        }
      }
      day += 1
      date = CivilDate(dayNumber: day)
    }
    return nil
  }

  private func matches(_ date: CivilDate, _ day: Int) -> Bool {
    let isDay = days & (1 << UInt32(date.day)) != 0
    let isWeekday = weekdays & (1 << UInt8(CivilDate.weekday(ofDayNumber: day))) != 0
    return needsOneOfBoth ? isDay || isWeekday : isDay && isWeekday
  }

  private func instant(
    onDay day: Int,
    fromMinute start: Int,
    after instant: Int,
    _ clock: ZoneClock
  ) -> Int? {
    var minute = start
    while let next = minuteOfDay(from: minute) {
      let found = clock.instant(of: day * 86_400 + next * 60 + second)
      if found > instant { return found }
      minute = next + 1
    }
    return nil
  }

  /// Returns the first minute of a day, from this one on, that the pattern has.
  private func minuteOfDay(from start: Int) -> Int? {
    var hour = start / 60
    var minute = start % 60
    while hour < 24 {
      if hours & (1 << UInt32(hour)) != 0 {
        let rest = minutes >> UInt64(minute)
        if rest != 0 { return hour * 60 + minute + rest.trailingZeroBitCount }
      }
      hour += 1
      minute = 0
    }
    return nil
  }
}
