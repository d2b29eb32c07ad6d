extension RetryDecision {
  /// Returns what to do about an unsuccessful response of an HTTP server.
  ///
  /// | status | any request | idempotent request |
  /// | --- | --- | --- |
  /// | 408, 425, 429; 503 with `Retry-After` | retry | retry |
  /// | 500, 502, 503, 504, other unknown 5xx | stop | retry |
  /// | 501, 505, 506, 507, 508, 510, 511 | stop | stop |
  /// | anything else | stop | stop |
  ///
  /// In the first row, the server says that it has not acted on the request, so a retry is safe. In
  /// the second row, the server may have acted on the request, so only an idempotent request may be
  /// repeated (RFC 9110, 9.2.2). In the third row, a repeated request would fail for the same
  /// reason.
  ///
  /// If the request is to be retried and `Retry-After` is a time in the future, the decision is
  /// ``RetryDecision/retry(after:)``. A server may ask for a delay of hours;
  /// ``RetryPolicy/maxElapsedTime`` guards against that. If `Retry-After` is a date, it is compared
  /// with the response's `Date`, which comes from the same clock, so a wrong clock on the client
  /// does no harm. A value that can't be parsed is ignored.
  /// - Parameters:
  ///   - status: the response's status code.
  ///   - method: the request's method; GET, HEAD, OPTIONS, TRACE, PUT and DELETE are idempotent.
  ///   - isIdempotent: whether the request may be repeated even if its method is not idempotent,
  ///     for example because it has an idempotency key.
  ///   - retryAfter: the response's `Retry-After`, as seconds or as a date.
  ///   - date: the response's `Date`.
  /// - Returns: whether, and when, to send the request again.
  public static func http(
    status: Int,
    method: String,
    isIdempotent: Bool = false,
    retryAfter: String? = nil,
    date: String? = nil
  ) -> RetryDecision {
    let retryAfter = retryAfter.flatMap { HTTPRetryAfter($0, date: date) }
    switch status {
    case 408, 425, 429: break
    case 503 where retryAfter != nil: break
    case 501, 505, 506, 507, 508, 510, 511: return .stop
    case 500...599 where isIdempotent || isIdempotentMethod(method): break
    default: return .stop
    }
    guard let retryAfter, retryAfter.delay > .zero else { return .retry }
    return .retry(after: retryAfter.delay)
  }

  // Methods are case-sensitive (RFC 9110, 9.1).
  private static func isIdempotentMethod(_ method: String) -> Bool {
    switch method {
    case "GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE": true
    default: false
    }
  }
}

/// The `Retry-After` field of an HTTP response (RFC 9110, 10.2.3).
struct HTTPRetryAfter: Equatable {
  /// The time to wait before a retry; zero if it is not known.
  let delay: Duration

  /// Parses the field's value; returns `nil` if the value is neither a number of seconds nor a
  /// date.
  ///
  /// `date` is the response's `Date` field. Without it, a date can't be turned into a delay, and
  /// the delay is zero.
  init?(_ value: String, date: String?) {
    let words = value.split { $0 == " " || $0 == "\t" }
    if words.count == 1, let seconds = Self.parseSeconds(words[0]) {
      delay = .seconds(seconds)
    } else if let then = HTTPDate(value) {
      let now = date.flatMap(HTTPDate.init) ?? then
      delay = .seconds(max(then.secondsSince1970 - now.secondsSince1970, 0))
    } else {
      return nil
    }
  }

  /// Parses a decimal number of any length; if it is too large, returns the greatest `Int64`.
  private static func parseSeconds(_ text: Substring) -> Int64? {
    var seconds: Int64 = 0
    for byte in text.utf8 {
      guard let digit = byte.decimalDigit else { return nil }
      let (product, overflow) = seconds.multipliedReportingOverflow(by: 10)
      let (sum, carry) = product.addingReportingOverflow(Int64(digit))
      seconds = overflow || carry ? .max : sum
    }
    return seconds
  }
}

/// A date in any of the three HTTP formats that a recipient must accept (RFC 9110, 5.6.7).
struct HTTPDate: Comparable {
  /// Seconds since 1 January 1970, UTC.
  let secondsSince1970: Int64

  /// Parses a date; returns `nil` if `text` is not a date.
  ///
  /// The initializer does not check that the day of the week is right, or which separators are
  /// used.
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
    let clock = time.compactMap { $0.count == 2 ? Self.parseNumber($0) : nil }
    guard
      let month = months.firstIndex(where: { $0 == month }).map({ $0 + 1 }),
      let year = Self.parseYear(year),
      day.count <= 2, let day = Self.parseNumber(day),
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

  // HTTP began in 1991, so two-digit years from 91 on belong to the 20th century.
  private static func parseYear(_ text: Substring) -> Int? {
    guard let year = parseNumber(text) else { return nil }
    switch text.count {
    case 2: return year > 90 ? 1900 + year : 2000 + year
    case 4: return year
    default: return nil
    }
  }

  private static func parseNumber(_ text: Substring) -> Int? {
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

  /// Returns the number of days from 1 January 1970 to a date of the Gregorian calendar.
  private static func daysSince1970(year: Int, month: Int, day: Int) -> Int {
    let past = year - 1
    let leapDays = past / 4 - past / 100 + past / 400
    let months = (1..<month).reduce(0) { $0 + days(inMonth: $1, of: year) }
    // There are 719,162 days from 1 January of the year 1 to 1 January 1970.
    return past * 365 + leapDays + months + day - 1 - 719_162
  }
}

extension UInt8 {
  /// The value of this ASCII digit; `nil` if the byte isn't a digit.
  var decimalDigit: UInt8? { (0x30...0x39).contains(self) ? self - 0x30 : nil }
}
