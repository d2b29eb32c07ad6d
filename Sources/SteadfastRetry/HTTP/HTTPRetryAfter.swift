/// The field `Retry-After` of an HTTP response (RFC 9110, 10.2.3).
struct HTTPRetryAfter: Equatable {
  /// How long to wait at least; zero if that is not known.
  let delay: Duration

  /// Nil if the value is neither a number of seconds nor a date.
  ///
  /// `date` is the response's own `Date`: without it a date as the value can't be turned into a
  /// delay.
  init?(_ value: String, date: String?) {
    let words = value.split { $0 == " " || $0 == "\t" }
    if words.count == 1, let seconds = Self.seconds(words[0]) {
      delay = .seconds(seconds)
    } else if let then = HTTPDate(value) {
      let now = date.flatMap(HTTPDate.init) ?? then
      delay = .seconds(max(then.secondsSince1970 - now.secondsSince1970, 0))
    } else {
      return nil
    }
  }

  /// Any number of decimal digits, saturating.
  private static func seconds(_ text: Substring) -> Int64? {
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
