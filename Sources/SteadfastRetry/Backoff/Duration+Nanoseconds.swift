extension Duration {
  /// The longest duration of whole nanoseconds, about 5 × 10¹² years.
  static var longest: Duration {
    Duration(wholeNanoseconds: Duration(attoseconds: .max).wholeNanoseconds)
  }

  /// This duration in nanoseconds, rounded towards zero; every duration fits.
  var wholeNanoseconds: Int128 { attoseconds / 1_000_000_000 }

  /// The duration of this many nanoseconds, or the nearest one that a `Duration` can hold.
  init(wholeNanoseconds nanoseconds: Int128) {
    let (product, overflow) = nanoseconds.multipliedReportingOverflow(by: 1_000_000_000)
    let nearest: Int128 = nanoseconds < 0 ? .min : .max
    self.init(attoseconds: overflow ? nearest : product)
  }

  /// The product, or the nearest duration that a `Duration` can hold.
  func multiplied(by factor: Int128) -> Duration {
    let (product, overflow) = attoseconds.multipliedReportingOverflow(by: factor)
    guard overflow else { return Duration(attoseconds: product) }
    return Duration(attoseconds: (self < .zero) == (factor < 0) ? .max : .min)
  }

  /// The sum, or the nearest duration that a `Duration` can hold.
  func adding(_ other: Duration) -> Duration {
    let (sum, overflow) = attoseconds.addingReportingOverflow(other.attoseconds)
    guard overflow else { return Duration(attoseconds: sum) }
    return Duration(attoseconds: other < .zero ? .min : .max)
  }
}
