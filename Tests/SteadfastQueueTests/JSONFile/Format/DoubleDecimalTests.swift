import SteadfastRetry
import TestSupport
import Testing

@testable import SteadfastQueue

@Suite struct DoubleDecimalTests {
  private func parsedNumber(_ text: String) -> Double? { Double(decimal: Array(text.utf8)[...]) }

  @Test(arguments: [
    "0", "-0", "0.0", "-0.0", "1", "-1", "10", "0.1", "-0.1", "1795277767.5924182", "0.5", "0.25",
    "9007199254740993", "9007199254740992.5", "9007199254740993.0", "9007199254740993.001",
    "4503599627370496.5", "4503599627370497.5", "4503599627370497.500", "9999999999999999999",
    "0.000000000000000001", "0.100000000000000005", "1.000000000000000001",
    "0.999999999999999999", "999999999999999999.9", "-62135769600.0", "64092211200.0",
    "1.7976931348623157", "3.141592653589793238",
  ])
  func `a number is rounded as the standard library rounds it`(text: String) throws {
    #expect(parsedNumber(text)?.bitPattern == (try #require(Double(text))).bitPattern)
  }

  @Test
  func `up to 19 digits with a decimal point anywhere are rounded as by the standard library`()
    throws
  {
    var random = SplitMix64(seed: 19)
    for _ in 0..<Soak.runs(short: 20_000) {
      // Numbers of all lengths. Half of them are close to the middle between two adjacent doubles.
      var digits = String((random.next() >> (random.next() % 64)) % 10_000_000_000_000_000_000)
      if random.next() % 2 == 0, let number = Double(digits), number < 0x1p53 {
        digits = String(UInt64(number.nextUp + number) / 2)
      }
      let decimals = Int(random.next() % UInt64(digits.count))
      if decimals > 0 { digits.insert(".", at: digits.index(digits.endIndex, offsetBy: -decimals)) }
      #expect(parsedNumber(digits)?.bitPattern == Double(digits)?.bitPattern, "\(digits)")
    }
  }

  @Test func `a date is read as the value that was written`() {
    var random = SplitMix64(seed: 1970)
    for _ in 0..<Soak.runs(short: 20_000) {
      let date = Double(random.next() >> 11) / 0x1p53 * 4e9 - 1e9
      #expect(parsedNumber(date.description) == date)
    }
  }

  @Test(arguments: [
    "", "-", "+1", ".5", "1.", "-.5", "007", "00", "-01", "0x1", "1e3", "1.5E2", "nan", "inf", " 1",
    "1 ", "1.2.3", "1,5", "10000000000000000000", "0.0000000000000000001",
    "1.0000000000000000000", "--1", "1-", "٣",
  ])
  func `a string that is too long or not a plain decimal returns nil`(text: String) {
    #expect(parsedNumber(text) == nil)
  }

  @Test func `only the bytes of a slice are read`() {
    #expect(Double(decimal: Array("12.345".utf8)[1..<4]) == 2.3)
  }
}
