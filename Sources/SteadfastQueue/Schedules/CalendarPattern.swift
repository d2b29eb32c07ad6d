import SystemFoundation

/// The days and times of day that a line of cron describes.
///
/// Each set of numbers is stored as bits: if minute 5 matches, bit 5 of ``minutes`` is set.
struct CalendarPattern: Sendable, Hashable {
  var minutes: UInt64
  var hours: UInt32
  /// Days of the month, from 1 to 31.
  var days: UInt32
  /// Months, from 1 to 12.
  var months: UInt16
  /// Days of the week, from 0 for Sunday to 6.
  var weekdays: UInt8
  /// Whether a day must match only one of ``days`` and ``weekdays``, instead of both.
  var matchesDayOrWeekday = false
  var second = 0

  static let allDays: UInt32 = 0xFFFF_FFFE
  static let allMonths: UInt16 = 0x1FFE
  static let allWeekdays: UInt8 = 0x7F

  /// The maximum number of days to search: if any day matches the pattern, one of these does.
  ///
  /// Between two dates of 29 February, there may be eight years. If 29 February must also be a
  /// certain day of the week, there may be 40 years, as from 2072 to 2112.
  private static let maxSearchedDays = 41 * 366

  /// Whether any day of any year matches the pattern.
  var hasDays: Bool {
    if matchesDayOrWeekday { return true }
    return (1...12).contains { month in
      months & (1 << UInt16(month)) != 0
        && (1...CivilDate.maxDays(ofMonth: month)).contains { days & (1 << UInt32($0)) != 0 }
    }
  }

  /// Returns the first instant after `instant` that matches the pattern.
  ///
  /// Instants are seconds since 1970, in GMT. The search skips whole months, and hours within a
  /// day. So it usually checks two or three days and times, and at most some thousand days.
  ///
  /// - Returns: The instant; `nil` if no day matches the pattern.
  func instant(after instant: Int, on clock: ZoneClock) -> Int? {
    guard hasDays else { return nil }
    let now = clock.time(at: instant)
    let today = now.flooredQuotient(86_400)
    var date = CivilDate(dayNumber: today)
    var day = today
    while day < today + Self.maxSearchedDays {
      guard months & (1 << UInt16(date.month)) != 0 else {
        date = date.firstOfNextMonth
        day = date.dayNumber
        continue
      }
      if matches(date, dayNumber: day) {
        // Today's times before now are not searched, even if the clocks go back and show them
        // again.
        let start = day == today ? (now - today * 86_400) / 60 : 0
        if let found = self.instant(onDay: day, fromMinute: start, after: instant, on: clock) {
          return found
        }
      }
      day += 1
      date = CivilDate(dayNumber: day)
    }
    return nil
  }

  private func matches(_ date: CivilDate, dayNumber day: Int) -> Bool {
    let isDay = days & (1 << UInt32(date.day)) != 0
    let isWeekday = weekdays & (1 << UInt8(CivilDate.weekday(ofDayNumber: day))) != 0
    return matchesDayOrWeekday ? isDay || isWeekday : isDay && isWeekday
  }

  private func instant(
    onDay day: Int,
    fromMinute start: Int,
    after instant: Int,
    on clock: ZoneClock
  ) -> Int? {
    var minute = start
    while let next = firstMatchingMinute(from: minute) {
      let found = clock.instant(of: day * 86_400 + next * 60 + second)
      if found > instant { return found }
      minute = next + 1
    }
    return nil
  }

  /// Returns the first minute of a day that matches the pattern, from `start` on.
  private func firstMatchingMinute(from start: Int) -> Int? {
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

/// A date of the proleptic Gregorian calendar.
///
/// Days are counted from 1 January 1970. The arithmetic is that of H. Hinnant, "chrono-Compatible
/// Low-Level Date Algorithms": eras of 400 years, each of 146,097 days, and years that begin in
/// March, so that the leap day is the last of a year.
struct CivilDate: Equatable {
  var year: Int
  /// The month, from 1 to 12.
  var month: Int
  /// The day of the month, from 1 to 31.
  var day: Int

  init(year: Int, month: Int, day: Int) {
    self.year = year
    self.month = month
    self.day = day
  }

  /// Makes the date that is this number of days after 1 January 1970.
  init(dayNumber: Int) {
    let shifted = dayNumber + Self.daysFromMarch0To1970
    let era = shifted.flooredQuotient(Self.daysOfEra)
    let dayOfEra = shifted - era * Self.daysOfEra
    let yearOfEra = (dayOfEra - dayOfEra / 1_460 + dayOfEra / 36_524 - dayOfEra / 146_096) / 365
    let dayOfYear = dayOfEra - (365 * yearOfEra + yearOfEra / 4 - yearOfEra / 100)
    let shiftedMonth = (5 * dayOfYear + 2) / 153
    day = dayOfYear - (153 * shiftedMonth + 2) / 5 + 1
    month = shiftedMonth < 10 ? shiftedMonth + 3 : shiftedMonth - 9
    year = yearOfEra + era * 400 + (month <= 2 ? 1 : 0)
  }

  /// The number of days from 1 January 1970 to this date.
  var dayNumber: Int {
    let shiftedYear = month <= 2 ? year - 1 : year
    let era = shiftedYear.flooredQuotient(400)
    let yearOfEra = shiftedYear - era * 400
    let dayOfYear = (153 * (month > 2 ? month - 3 : month + 9) + 2) / 5 + day - 1
    let dayOfEra = yearOfEra * 365 + yearOfEra / 4 - yearOfEra / 100 + dayOfYear
    return era * Self.daysOfEra + dayOfEra - Self.daysFromMarch0To1970
  }

  /// The first day of the next month.
  var firstOfNextMonth: CivilDate {
    month == 12
      ? CivilDate(year: year + 1, month: 1, day: 1)
      : CivilDate(year: year, month: month + 1, day: 1)
  }

  /// Returns the day of the week, from 0 for Sunday, of the date with this ``dayNumber``.
  static func weekday(ofDayNumber number: Int) -> Int {
    // 1 January 1970 was a Thursday.
    let weekday = (number + 4) % 7
    return weekday < 0 ? weekday + 7 : weekday
  }

  /// Returns the number of days of a month; 29 for February.
  static func maxDays(ofMonth month: Int) -> Int {
    switch month {
    case 2: 29
    case 4, 6, 9, 11: 30
    default: 31
    }
  }

  private static let daysOfEra = 146_097
  /// The number of days from 1 March of the year 0 to 1 January 1970.
  private static let daysFromMarch0To1970 = 719_468
}

extension Int {
  /// Returns the quotient, rounded down.
  func flooredQuotient(_ divisor: Int) -> Int {
    let quotient = self / divisor
    return self % divisor < 0 ? quotient - 1 : quotient
  }
}

/// Converts between instants and the times that the clocks of a time zone show.
///
/// An instant is the number of seconds since 1 January 1970, 00:00 GMT. A time is the number of
/// seconds since the clocks of the zone showed 1 January 1970, 00:00, if they had never gone
/// forward or back. Of the zone, only its offset from GMT at an instant is used.
struct ZoneClock {
  let zone: TimeZone

  /// The maximum numbers of seconds by which the clocks of a zone are ahead of GMT, and behind GMT.
  ///
  /// Real offsets are from -12 to +14 hours. These limits are an hour greater, to be safe.
  private static let (maxAhead, maxBehind) = (15 * 3_600, 13 * 3_600)

  /// Returns the time that the clocks show at an instant.
  func time(at instant: Int) -> Int { instant + offset(at: instant) }

  /// Returns the instant at which the clocks show a time.
  ///
  /// If the clocks go back and show the time twice, the result is the first of the two instants. If
  /// the clocks go forward and skip the time, the result is the first instant after the change. The
  /// function assumes that the offset changes at most once within 28 hours.
  func instant(of time: Int) -> Int {
    // The result is between `start` and `end`.
    let (start, end) = (time - Self.maxAhead, time + Self.maxBehind)
    let (before, after) = (offset(at: start), offset(at: end))
    // `first` is the result for the offset before a change, and `second` for the offset after it.
    // If both are right, the clocks show the time twice, and `first` is the earlier instant.
    let first = time - before
    if before == after || offset(at: first) == before { return first }
    let second = time - after
    if offset(at: second) == after { return second }
    return offsetChange(from: before, between: start, and: end)
  }

  /// Returns the first instant after `start` at which the offset differs from the offset at
  /// `start`; `nil` if the offsets at `start` and at `end` are equal.
  func offsetChange(after start: Int, through end: Int) -> Int? {
    let before = offset(at: start)
    return offset(at: end) == before ? nil : offsetChange(from: before, between: start, and: end)
  }

  /// Returns the first instant between `start` and `end` at which the offset is no longer `offset`.
  private func offsetChange(from offset: Int, between start: Int, and end: Int) -> Int {
    var (low, high) = (start, end)
    while high - low > 1 {
      let middle = low + (high - low) / 2
      if self.offset(at: middle) == offset { low = middle } else { high = middle }
    }
    return high
  }

  private func offset(at instant: Int) -> Int {
    zone.secondsFromGMT(for: Date(timeIntervalSince1970: Double(instant)))
  }
}
