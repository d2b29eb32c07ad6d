/// A date in any of the three HTTP formats that a recipient must accept (RFC 9110, 5.6.7).
struct HTTPDate: Comparable {
  /// Seconds since 1 January 1970, UTC.
  let secondsSince1970: Int64

  /// Parses a date; nil if the text is not a date.
  ///
  /// It checks neither that the day of the week matches nor which separators are used.
  init?(_ text: String) {
    let words = text.split { " ,-:\t".contains($0) }
    guard let first = words.first, first.count >= 3, first.allSatisfy(\.isLetter) else {
      return nil
    }
    // Sun, 06 Nov 1994 08:49:37 GMT      Sunday, 06-Nov-94 08:49:37 GMT
    if words.count == 8, words[7] == "GMT" {
      self.init(day: words[1], month: words[2], year: words[3], time: words[4...6])
      // Sun Nov  6 08:49:37 1994
    } else if words.count == 7 {
      self.init(day: words[2], month: words[1], year: words[6], time: words[3...5])
    } else {
      return nil
    }
  }

  private init?(day: Substring, month: Substring, year: Substring, time: ArraySlice<Substring>) {
    let months = [
      "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ]
    let clock = time.compactMap { $0.count == 2 ? Self.number($0) : nil }
    guard
      let month = months.firstIndex(where: { $0 == month }).map({ $0 + 1 }),
      let year = Self.year(year),
      day.count <= 2, let day = Self.number(day),
      (1...Self.days(inMonth: month, of: year)).contains(day),
      // 60 is a leap second.
      clock.count == 3, clock[0] < 24, clock[1] < 60, clock[2] <= 60
    else { return nil }
    let days = Self.daysSince1970(year: year, month: month, day: day)
    let seconds = clock[0] * 3600 + clock[1] * 60 + clock[2]
    secondsSince1970 = Int64(days) * 86_400 + Int64(seconds)
  }

  static func < (left: HTTPDate, right: HTTPDate) -> Bool {
    left.secondsSince1970 < right.secondsSince1970
  }

  // HTTP began in 1991: two-digit years from 91 on belong to the last century.
  private static func year(_ text: Substring) -> Int? {
    guard let year = number(text) else { return nil }
    switch text.count {
    case 2: return year > 90 ? 1900 + year : 2000 + year
    case 4: return year
    default: return nil
    }
  }

  private static func number(_ text: Substring) -> Int? {
    text.utf8.allSatisfy { $0.decimalDigit != nil } ? Int(text) : nil
  }

  private static func isLeap(_ year: Int) -> Bool {
    year.isMultiple(of: 4) && (!year.isMultiple(of: 100) || year.isMultiple(of: 400))
  }

  private static func days(inMonth month: Int, of year: Int) -> Int {
    switch month {
    case 2: isLeap(year) ? 29 : 28
    case 4, 6, 9, 11: 30
    default: 31
    }
  }

  /// Returns the days since 1970 in the Gregorian calendar: of whole years, then of whole months.
  private static func daysSince1970(year: Int, month: Int, day: Int) -> Int {
    let past = year - 1
    let leapDays = past / 4 - past / 100 + past / 400
    let months = (1..<month).reduce(0) { $0 + days(inMonth: $1, of: year) }
    // There are 719,162 days from 1 January of the year 1 to 1 January 1970.
    return past * 365 + leapDays + months + day - 1 - 719_162
  }
}

extension UInt8 {
  /// The value of an ASCII digit.
  var decimalDigit: UInt8? { (0x30...0x39).contains(self) ? self - 0x30 : nil }
}
