/// The digits of identifiers and checksums: written in lower case, read in either case.
enum Hexadecimal {
  /// Returns the digit for the lowest four bits.
  static func digit(_ bits: UInt64) -> UInt8 {
    let value = UInt8(truncatingIfNeeded: bits & 15)
    return value < 10 ? UInt8(ascii: "0") + value : UInt8(ascii: "a") + value - 10
  }

  /// Returns the eight digits of a number, the first in the lowest byte.
  static func eightDigits(of number: UInt32) -> UInt64 {
    let each: UInt64 = 0x0101_0101_0101_0101
    var values = UInt64(number)
    values = (values | values << 16) & 0x0000_FFFF_0000_FFFF
    values = (values | values << 8) & 0x00FF_00FF_00FF_00FF
    values = (values | values << 4) & 0x0F0F_0F0F_0F0F_0F0F
    values = values.byteSwapped
    // The letters begin 0x27 characters after the character that follows '9'.
    let isLetter = (values &+ each * 6) >> 4 & each
    return values &+ each * UInt64(UInt8(ascii: "0")) &+ isLetter * 0x27
  }

  /// Returns the text of the lowest bits of a number.
  static func text(_ number: UInt64, digits: Int) -> String {
    let places = (0..<digits).reversed()
    return String(decoding: places.map { digit(number >> (4 * UInt64($0))) }, as: UTF8.self)
  }

  static func value(of digit: UInt8) -> UInt8? {
    switch digit {
    case UInt8(ascii: "0")...UInt8(ascii: "9"): digit - UInt8(ascii: "0")
    case UInt8(ascii: "a")...UInt8(ascii: "f"): digit - UInt8(ascii: "a") + 10
    case UInt8(ascii: "A")...UInt8(ascii: "F"): digit - UInt8(ascii: "A") + 10
    default: nil
    }
  }

  /// Returns the number for eight digits, the first in the lowest byte; `nil` if one is no digit.
  ///
  /// It converts all digits at once: it treats each character as a digit and computes its value,
  /// writes these values as digits again, and compares these with the characters.
  static func value(ofEight digits: UInt64) -> UInt32? {
    let each: UInt64 = 0x0101_0101_0101_0101
    // Among the characters that are digits, only the letters have bit 6.
    let letters = digits >> 6 & each
    var values = (digits & (each * 0x0F)) &+ letters * 9
    let isTen = (values &+ each * 6) >> 4 & each
    let written = values &+ each * UInt64(UInt8(ascii: "0")) &+ isTen * 0x27
    guard values & (each * 0xF0) == 0, written == digits | letters << 5 else { return nil }
    values = values.byteSwapped
    values = (values | values >> 4) & 0x00FF_00FF_00FF_00FF
    values = (values | values >> 8) & 0x0000_FFFF_0000_FFFF
    return UInt32(truncatingIfNeeded: values | values >> 16)
  }
}
