import SteadfastRetry
import Testing

@testable import SteadfastQueue

@Suite struct HexadecimalTests {
  private func value(of digits: [UInt8]) -> UInt32? {
    digits.reduce(0) { value, digit in
      guard let value, let bits = Hexadecimal.value(of: digit) else { return nil }
      return value << 4 | UInt32(bits)
    }
  }

  private func valueAtOnce(of digits: [UInt8]) -> UInt32? {
    Hexadecimal.value(ofEight: digits.reversed().reduce(0) { $0 << 8 | UInt64($1) })
  }

  @Test func `reading eight digits at once equals reading them one by one`() {
    var generator = SplitMix64(seed: 1)
    let alphabet = Array("0123456789abcdefABCDEF".utf8)
    for _ in 0..<1000 {
      let digits = (0..<8).map { _ in alphabet.randomElement(using: &generator) ?? 0 }
      #expect(valueAtOnce(of: digits) != nil)
      #expect(valueAtOnce(of: digits) == value(of: digits))
    }
  }

  @Test(arguments: 0..<8)
  func `each byte at each position is read as a digit or rejected`(place: Int) {
    for neighbour in "09afAF".utf8 {
      for byte in UInt8.min...UInt8.max {
        var digits = [UInt8](repeating: neighbour, count: 8)
        digits[place] = byte
        #expect(valueAtOnce(of: digits) == value(of: digits), "\(byte)")
      }
    }
  }
}
