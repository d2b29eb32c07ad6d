/// A day of the proleptic Gregorian calendar.
///
/// Days are counted from 1 January 1970. The arithmetic is that of H. Hinnant, "chrono-Compatible
/// Low-Level Date Algorithms": eras of 400 years, each of 146,097 days, and years that begin in
/// March, so that the leap day is the last of a year.
struct CivilDate: Equatable {
  var year: Int
  /// From 1 to 12.
  var month: Int
  /// From 1 to 31.
  var day: Int

  init(year: Int, month: Int, day: Int) {
    self.year = year
    self.month = month
    self.day = day
  }

  /// Makes the day that is this number of days after 1 January 1970.
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

  /// The number of days from 1 January 1970 to this day.
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

  /// The day of the week of a day, from 0 for Sunday.
  static func weekday(ofDayNumber number: Int) -> Int {
    // 1 January 1970 was a Thursday.
    let weekday = (number + 4) % 7
    return weekday < 0 ? weekday + 7 : weekday
  }

  /// The greatest number of days that a month ever has.
  static func mostDays(ofMonth month: Int) -> Int {
    switch month {
    case 2: 29
    case 4, 6, 9, 11: 30
    default: 31
    }
  }

  private static let daysOfEra = 146_097
  /// From 1 March of the year 0 to 1 January 1970.
  private static let daysFromMarch0To1970 = 719_468
}

extension Int {
  /// Returns the quotient, rounded down.
  func flooredQuotient(_ divisor: Int) -> Int {
    let quotient = self / divisor
    return self % divisor < 0 ? quotient - 1 : quotient
  }
}
