extension Double {
  /// Reads a plain decimal number from JSON: digits, with an optional minus sign and fraction.
  ///
  /// The result is rounded to the nearest value, ties to even, as `Double(_:)` rounds the text. Up
  /// to 19 digits are divided by a power of ten in integers, to more bits than a significand has.
  /// The remainder of the division decides what would be a tie. What this saves is said at
  /// ``WordTable``.
  ///
  /// - Returns: `nil` for any other text, such as a number with an exponent or more than 19 digits.
  init?(decimal text: ArraySlice<UInt8>) {
    var index = text.startIndex
    let isNegative = text.first == UInt8(ascii: "-")
    if isNegative { index += 1 }
    var digits: UInt64 = 0
    let start = index
    while index < text.endIndex, let digit = text[index].decimalDigit {
      // The sum wraps around only if there are too many digits, which is checked below.
      digits = digits &* 10 &+ digit
      index += 1
    }
    let wholes = index - start
    guard wholes == 1 || wholes > 1 && text[start] != UInt8(ascii: "0") else { return nil }
    var decimals = 0
    if index < text.endIndex, text[index] == UInt8(ascii: ".") {
      index += 1
      let start = index
      while index < text.endIndex, let digit = text[index].decimalDigit {
        digits = digits &* 10 &+ digit
        index += 1
      }
      decimals = index - start
      guard decimals > 0 else { return nil }
    }
    guard index == text.endIndex, wholes + decimals <= 19 else { return nil }
    let magnitude = Self.quotient(of: digits, byTenTo: decimals)
    self = isNegative ? -magnitude : magnitude
  }

  private static func quotient(of digits: UInt64, byTenTo exponent: Int) -> Double {
    guard exponent > 0, digits > 0 else { return Double(digits) }
    let divisor = powersOfTen[exponent]
    // With this shift the quotient has 60 or 61 bits: more than the 53 of a significand and one to
    // round by. The divisor has at least four bits, so the shift is never negative.
    let shift = digits.leadingZeroBitCount - divisor.leadingZeroBitCount + 60
    let (quotient, rest) = (UInt128(digits) << UInt128(shift))
      .quotientAndRemainder(dividingBy: UInt128(divisor))
    let rounded = Double(UInt64(quotient) | (rest == 0 ? 0 : 1))
    return rounded * Double(sign: .plus, exponent: -shift, significand: 1)
  }

  /// The powers of ten that fit into 64 bits.
  private static let powersOfTen: [UInt64] = (0..<20).map { exponent in
    (0..<exponent).reduce(1) { power, _ in power * 10 }
  }
}

extension UInt8 {
  /// The value of an ASCII digit, or `nil` for any other character.
  var decimalDigit: UInt64? {
    let value = self &- UInt8(ascii: "0")
    return value < 10 ? UInt64(value) : nil
  }
}
