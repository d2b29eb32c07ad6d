/// The `Retry-After` field of an HTTP response (RFC 9110, 10.2.3).
struct HTTPRetryAfter: Equatable {
  /// The shortest time to wait; zero if it is not known.
  let delay: Duration

  /// Parses the field's value; nil if it is neither a number of seconds nor a date.
  ///
  /// `date` is the response's own `Date` field. Without it, a value that is a date can't be turned
  /// into a delay.
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

  /// Parses any number of decimal digits, and saturates.
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
