import SystemC

/// Reads JSON from a range of bytes, without copying the bytes.
///
/// Each method reads or skips one element at `position`. It returns `nil` or `false` if there is
/// another element. No method reads beyond the range.
struct JSONScanner {
  /// The maximum nesting depth of arrays and objects.
  static var maxDepth: Int { 64 }

  private let bytes: [UInt8]
  private let end: Int
  private(set) var position: Int

  init(_ bytes: [UInt8], _ range: Range<Int>) {
    self.bytes = bytes
    position = range.lowerBound
    end = range.upperBound
  }

  var isAtEnd: Bool { position == end }

  mutating func skip(_ text: StaticString) -> Bool {
    let (bytes, start, end) = (bytes, position, end)
    // The string is a literal, so its bytes are never freed.
    let isThere = text.withUTF8Buffer { text in
      guard text.count <= end - start else { return false }
      for offset in 0..<text.count {
        guard unsafe text[offset] == bytes[start + offset] else { return false }
      }
      return true
    }
    if isThere { position += text.utf8CodeUnitCount }
    return isThere
  }

  mutating func skip(_ byte: UInt8) -> Bool {
    guard position < end, bytes[position] == byte else { return false }
    position += 1
    return true
  }

  /// Reads a string that is a word in a table and has no escapes.
  ///
  /// - Returns: The word's meaning; `nil` if there is another element. Then the position does not
  ///   change.
  mutating func readWord<Word>(in table: WordTable<Word>) -> Word? {
    guard position < end, bytes[position] == UInt8(ascii: "\"") else { return nil }
    var word = PackedWord()
    var index = position + 1
    let last = min(end, index + PackedWord.maxLength + 1)
    while index < last {
      if bytes[index] == UInt8(ascii: "\"") {
        guard let meaning = table[word] else { return nil }
        position = index + 1
        return meaning
      }
      guard word.append(bytes[index]) else { return nil }
      index += 1
    }
    return nil
  }

  /// Reads an integer without a sign or leading zeros.
  mutating func readSequenceNumber() -> UInt64? {
    let start = position
    var value: UInt64 = 0
    while position < end, let digit = bytes[position].decimalDigit {
      let (tens, overflowed) = value.multipliedReportingOverflow(by: 10)
      let (sum, overflowedToo) = tens.addingReportingOverflow(digit)
      guard !overflowed, !overflowedToo else { return nil }
      value = sum
      position += 1
    }
    let length = position - start
    guard length > 0, length == 1 || bytes[start] != UInt8(ascii: "0") else { return nil }
    return value
  }

  mutating func skipNumber() -> Range<Int>? {
    let start = position
    _ = skip("-")
    let isZero = skip("0")
    guard isZero || skipDigits() else { return nil }
    if skip(".") {
      guard skipDigits() else { return nil }
    }
    if skip("e") || skip("E") {
      _ = skip("+") || skip("-")
      guard skipDigits() else { return nil }
    }
    return start..<position
  }

  private mutating func skipDigits() -> Bool {
    let start = position
    while position < end, bytes[position].decimalDigit != nil { position += 1 }
    return position > start
  }

  /// Reads a string, and replaces its escapes.
  mutating func readString() -> String? {
    guard let range = skipString() else { return nil }
    let contents = bytes[range]
    guard contents.contains(UInt8(ascii: "\\")) else {
      return String(validating: contents, as: UTF8.self)
    }
    return Self.resolveEscapes(in: contents)
  }

  /// Skips a string, and returns the range between its quotation marks.
  ///
  /// Escapes are not replaced.
  private mutating func skipString() -> Range<Int>? {
    guard position < end, bytes[position] == UInt8(ascii: "\"") else { return nil }
    var index = position + 1
    while index < end {
      switch bytes[index] {
      case UInt8(ascii: "\""):
        defer { position = index + 1 }
        return position + 1..<index
      case UInt8(ascii: "\\"): index += 2
      case 0..<0x20: return nil
      default: index += 1
      }
    }
    return nil
  }

  /// Skips a JSON value, and returns its range.
  ///
  /// Only the nesting depth, the strings and the characters are checked, not the whole syntax.
  mutating func skipValue() -> Range<Int>? {
    let start = position
    var depth = 0
    repeat {
      guard position < end else { return nil }
      switch bytes[position] {
      case UInt8(ascii: "{"), UInt8(ascii: "["):
        depth += 1
        guard depth <= Self.maxDepth else { return nil }
        position += 1
      case UInt8(ascii: "}"), UInt8(ascii: "]"):
        depth -= 1
        guard depth >= 0 else { return nil }
        position += 1
      case UInt8(ascii: "\""):
        guard skipString() != nil else { return nil }
      case UInt8(ascii: ","), UInt8(ascii: ":"), UInt8(ascii: " "):
        guard depth > 0 else { return nil }
        position += 1
      default:
        guard skipScalar() else { return nil }
      }
    } while depth > 0
    return start..<position
  }

  /// Skips a number, `true`, `false` or `null`.
  private mutating func skipScalar() -> Bool {
    let start = position
    var index = start
    scan: while index < end {
      switch bytes[index] {
      case UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "a")...UInt8(ascii: "z"),
        UInt8(ascii: "+"), UInt8(ascii: "-"), UInt8(ascii: "."), UInt8(ascii: "E"):
        index += 1
      default:
        break scan
      }
    }
    position = index
    return index > start
  }

  /// Replaces the escapes in a string; returns `nil` if there is one other than `\"`, `\\`, and
  /// `\u0000` to `\u007F`.
  ///
  /// ``JournalBody`` writes no other escapes.
  private static func resolveEscapes(in contents: ArraySlice<UInt8>) -> String? {
    var text: [UInt8] = []
    var index = contents.startIndex
    while index < contents.endIndex {
      guard contents[index] == UInt8(ascii: "\\") else {
        text.append(contents[index])
        index += 1
        continue
      }
      guard index + 1 < contents.endIndex else { return nil }
      switch contents[index + 1] {
      case UInt8(ascii: "\""), UInt8(ascii: "\\"):
        text.append(contents[index + 1])
        index += 2
      case UInt8(ascii: "u"):
        guard index + 6 <= contents.endIndex,
          contents[index + 2] == UInt8(ascii: "0"), contents[index + 3] == UInt8(ascii: "0"),
          let high = Hexadecimal.value(of: contents[index + 4]),
          let low = Hexadecimal.value(of: contents[index + 5]), high < 8
        else { return nil }
        text.append(high << 4 | low)
        index += 6
      default:
        return nil
      }
    }
    return String(validating: text, as: UTF8.self)
  }
}

extension Double {
  /// Reads a decimal number: digits, with an optional minus sign and an optional fraction.
  ///
  /// The result is the same as that of `Double(_:)` for a string, but is calculated faster. The
  /// digits are an integer, which is divided by a power of ten in integer arithmetic. The quotient
  /// has more bits than a significand, and is rounded to the nearest significand, or to the even
  /// one if two are equally near. ``WordTable`` says how much time this saves.
  ///
  /// - Returns: `nil` for anything else, such as a number with an exponent or more than 19 digits.
  init?(decimal text: ArraySlice<UInt8>) {
    var index = text.startIndex
    let isNegative = text.first == UInt8(ascii: "-")
    if isNegative { index += 1 }
    var digits: UInt64 = 0
    let start = index
    while index < text.endIndex, let digit = text[index].decimalDigit {
      // This can only overflow if there are too many digits, which is checked below.
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
    // With this shift, the quotient has 60 or 61 bits. That is enough for the 53 bits of a
    // significand and one bit for rounding. The divisor has at least four bits, so the shift is
    // never negative.
    let shift = digits.leadingZeroBitCount - divisor.leadingZeroBitCount + 60
    let (quotient, rest) = (UInt128(digits) << UInt128(shift))
      .quotientAndRemainder(dividingBy: UInt128(divisor))
    // If there is a remainder, the last bit is set, so that the quotient is not rounded as a tie.
    let rounded = Double(UInt64(quotient) | (rest == 0 ? 0 : 1))
    return rounded * Double(sign: .plus, exponent: -shift, significand: 1)
  }

  /// The powers of ten that fit into 64 bits.
  private static let powersOfTen: [UInt64] = (0..<20).map { exponent in
    (0..<exponent).reduce(1) { power, _ in power * 10 }
  }
}

extension UInt8 {
  /// The value of an ASCII digit; `nil` for any other character.
  var decimalDigit: UInt64? {
    let value = self &- UInt8(ascii: "0")
    return value < 10 ? UInt64(value) : nil
  }
}

extension [UInt8] {
  /// Returns the index of the first line feed at or after `start`; `nil` if there is none.
  func lineFeed(from start: Int) -> Int? {
    guard start < count else { return nil }
    // `memchr` searches many bytes at a time.
    return unsafe withUnsafeBytes { bytes in
      guard let base = bytes.baseAddress,
        let found = unsafe memchr(base + start, 0x0A, bytes.count - start)
      else { return nil }
      return unsafe UnsafeRawPointer(found) - base
    }
  }
}
