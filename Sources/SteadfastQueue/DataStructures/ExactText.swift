/// A string that equals another string only if both have the same UTF-8 bytes.
///
/// Swift considers the strings "\u{e9}" and "e\u{301}" equal, because they look the same. Databases
/// don't.
package struct ExactText: Hashable, Sendable {
  package let text: String

  package init(_ text: String) { self.text = text }

  package static func == (left: ExactText, right: ExactText) -> Bool {
    left.text.isExactly(right.text)
  }

  /// Hashes the string as Swift does, because strings with the same bytes have the same hash.
  package func hash(into hasher: inout Hasher) { hasher.combine(text) }
}

extension String {
  /// Returns whether two strings have the same UTF-8 bytes.
  package func isExactly(_ other: String) -> Bool {
    // Strings with the same bytes are always equal, and `==` is much faster for strings that
    // differ, or that share their storage.
    guard self == other else { return false }
    let isSame = unsafe utf8.withContiguousStorageIfAvailable { bytes in
      unsafe other.utf8.withContiguousStorageIfAvailable { others in
        // This is a loop over the indices, because `elementsEqual` takes seven times as long.
        bytes.count == others.count
          && bytes.indices.allSatisfy { unsafe bytes[$0] == others[$0] }
      }
    }
    // A string from Objective-C has no contiguous bytes.
    return (isSame ?? nil) ?? utf8.elementsEqual(other.utf8)
  }
}

/// A string that is compared with many others.
struct ComparedText: Sendable {
  let text: String
  private let isASCII: Bool

  init(_ text: String) {
    self.text = text
    isASCII = text.utf8.allSatisfy { $0 < 0x80 }
  }

  /// Returns whether both strings have the same UTF-8 bytes; faster than `String.isExactly(_:)`.
  func isExactly(_ other: String) -> Bool {
    // If `==` considers an ASCII string equal to one that is not ASCII, the latter has more bytes.
    isASCII
      ? text == other && text.utf8.count == other.utf8.count : text.isExactly(other)
  }
}

extension Set<String> {
  /// Returns whether the set contains a string with the same UTF-8 bytes.
  package func containsExactly(_ text: String) -> Bool {
    firstIndex(of: text).map { self[$0].isExactly(text) } ?? false
  }
}

extension Dictionary where Key == String {
  /// The value for the key that has the same UTF-8 bytes as `text`.
  package subscript(exactly text: String) -> Value? {
    guard let index = index(forKey: text) else { return nil }
    let (key, value) = self[index]
    return key.isExactly(text) ? value : nil
  }
}

extension [String: String] {
  /// Returns whether the dictionary has all of these keys and values, with the same UTF-8 bytes.
  package func containsExactly(_ pairs: [String: String]) -> Bool {
    pairs.allSatisfy { key, value in self[exactly: key]?.isExactly(value) ?? false }
  }
}

/// The digits of identifiers and checksums: written in lowercase, read in either case.
enum Hexadecimal {
  /// Returns the ASCII code of the hexadecimal digit for the lowest four bits.
  static func digit(_ bits: UInt64) -> UInt8 {
    let value = UInt8(truncatingIfNeeded: bits & 15)
    return value < 10 ? UInt8(ascii: "0") + value : UInt8(ascii: "a") + value - 10
  }

  /// Returns the eight hexadecimal digits of a number as ASCII codes, the first digit in the lowest
  /// byte.
  static func eightDigits(of number: UInt32) -> UInt64 {
    let each: UInt64 = 0x0101_0101_0101_0101
    var values = UInt64(number)
    values = (values | values << 16) & 0x0000_FFFF_0000_FFFF
    values = (values | values << 8) & 0x00FF_00FF_00FF_00FF
    values = (values | values << 4) & 0x0F0F_0F0F_0F0F_0F0F
    values = values.byteSwapped
    // The letters start 0x27 characters after the character that follows '9'.
    let isLetter = (values &+ each * 6) >> 4 & each
    return values &+ each * UInt64(UInt8(ascii: "0")) &+ isLetter * 0x27
  }

  /// Returns the last `digits` hexadecimal digits of a number.
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

  /// Returns the number that eight hexadecimal digits represent, the first digit in the lowest
  /// byte; `nil` if a character isn't a digit.
  ///
  /// The function converts all characters at once. It first computes the value that each character
  /// has if it is a digit. Then it converts the values back to digits, and compares these digits
  /// with the characters.
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

extension Sequence<UInt8> {
  /// The 64-bit FNV-1a hash of the bytes.
  var fnv1a: UInt64 { reduce(0xCBF2_9CE4_8422_2325) { ($0 ^ UInt64($1)) &* 0x100_0000_01B3 } }

  /// A hash of the bytes that is the same in every process.
  ///
  /// The hash is the 64-bit FNV-1a hash, whose bits the finalizer of MurmurHash3 has mixed.
  var stableHash: UInt64 {
    var hash = fnv1a
    hash = (hash ^ hash >> 33) &* 0xFF51_AFD7_ED55_8CCD
    hash = (hash ^ hash >> 33) &* 0xC4CE_B9FE_1A85_EC53
    return hash ^ hash >> 33
  }
}
