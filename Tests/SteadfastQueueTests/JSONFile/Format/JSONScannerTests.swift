import Testing

@testable import SteadfastQueue

@Suite struct JSONScannerTests {
  private func scanner(_ text: String) -> JSONScanner {
    let bytes = Array(text.utf8)
    return JSONScanner(bytes, bytes.indices)
  }

  @Test(arguments: [
    ("0", 0), ("7", 7), ("18446744073709551615", UInt64.max), ("12,", 12), ("0x", 0),
  ])
  func `sequence numbers are read`(text: String, number: UInt64) {
    var scanner = scanner(text)
    #expect(scanner.readSequenceNumber() == number)
  }

  @Test(arguments: ["", "-1", "01", "00", "18446744073709551616", "x", "99999999999999999999999"])
  func `invalid sequence numbers return nil`(text: String) {
    var scanner = scanner(text)
    #expect(scanner.readSequenceNumber() == nil)
  }

  @Test(arguments: [
    (#""""#, ""), (#""plain""#, "plain"), (#""a\"b\\c""#, #"a"b\c"#),
    (#""\u0000\u001f\u0041""#, "\u{0}\u{1f}A"), ("\"\u{1F600}\"", "\u{1F600}"),
  ])
  func `strings are unescaped`(text: String, string: String) {
    var scanner = scanner(text)
    #expect(scanner.readString() == string)
    #expect(scanner.isAtEnd)
  }

  @Test(arguments: [
    "", "plain", #"""#, #""open"#, #""open\"#, #""open\""#, #""\n""#, #""\u12"#, #""\u1234""#,
    #""\u00zz""#, "\"line\nfeed\"",
  ])
  func `invalid strings return nil`(text: String) {
    var scanner = scanner(text)
    #expect(scanner.readString() == nil)
  }

  @Test func `invalid UTF-8 is not a string`() {
    let bytes: [UInt8] = [0x22, 0xFF, 0xFE, 0x22]
    var scanner = JSONScanner(bytes, bytes.indices)
    #expect(scanner.readString() == nil)
  }

  @Test(arguments: [
    "1", "-1.5e+10", "true", "null", #""a}b""#, "{}", "[]", #"{"a":[1,{"b":"}"}],"c":null}"#,
    "[[[]]]", #"[ 1, 2 ]"#,
  ])
  func `a whole value is skipped`(text: String) {
    var scanner = scanner(text + ",")
    #expect(scanner.skipValue() == 0..<text.utf8.count)
  }

  @Test(arguments: ["", ",", "}", "{", "[", #"{"a"#, #"{"a":"b}"#, "\u{0}", "TRUE", "[\n]"])
  func `an invalid value isn't skipped`(text: String) {
    var scanner = scanner(text)
    #expect(scanner.skipValue() == nil)
  }

  @Test func `the scanner limits how deeply values may be nested`() {
    func nested(_ depth: Int) -> String {
      String(repeating: "[", count: depth) + String(repeating: "]", count: depth)
    }
    var deepest = scanner(nested(JSONScanner.maxDepth))
    #expect(deepest.skipValue() != nil)
    var tooDeep = scanner(nested(JSONScanner.maxDepth + 1))
    #expect(tooDeep.skipValue() == nil)
    var endless = scanner(String(repeating: "[", count: 1_000_000))
    #expect(endless.skipValue() == nil)
  }
}

@Suite struct CRC32CTests {
  @Test(
    arguments: [
      // The standard test of CRC-32C, and the examples of RFC 3720, appendix B.4.
      (Array("123456789".utf8), 0xE306_9283), ([UInt8](repeating: 0, count: 32), 0x8A91_36AA),
      ([UInt8](repeating: 0xFF, count: 32), 0x62A8_AB43), ((0..<32).map { UInt8($0) }, 0x46DD_794E),
      ([], 0),
    ] as [([UInt8], UInt32)]
  )
  func `checksums are those of the specification`(bytes: [UInt8], sum: UInt32) {
    #expect(CRC32C.checksum(bytes[...]) == sum)
  }

  @Test func `a slice has the checksum of its bytes`() {
    let bytes = (0..<100).map { UInt8($0) }
    for start in 0..<20 {
      #expect(CRC32C.checksum(bytes[start..<90]) == CRC32C.checksum(Array(bytes[start..<90])[...]))
    }
  }
}
