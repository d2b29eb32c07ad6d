import SteadfastRetry

@testable import SteadfastQueue

/// Changes files at random, and corrects the checksums and usually the line numbers, so that each
/// line by itself looks valid.
struct Forgery {
  private var damage: FileDamage
  private var random: SplitMix64

  init(seed: UInt64) {
    random = SplitMix64(seed: seed)
    damage = FileDamage(seed: random.next())
  }

  private mutating func pick(_ limit: Int) -> Int { Int(random.next() % UInt64(limit)) }

  private mutating func pick(_ values: [String]) -> String { values[pick(values.count)] }

  /// JSON values that replace the values of fields.
  private static let values = [
    "0", "-0", "-1", "9223372036854775807", "9223372036854775808", "-9223372036854775808",
    "4611686018427387904", "18446744073709551615", "18446744073709551616", "1e999", "-1e999",
    "1e308", "-1.7976931348623157e308", "5e-324", "1e3", "0.1", "00", "+1", "0x10", "NaN",
    "Infinity",
    "null", "true", "false", "\"\"", "\"always\"", "\"\\u0000\"", "\"\\ud800\"",
    "\"\\ud83d\\ude00\"",
    "\"\\n\"", "\"waiting\"", "\"running\"", "\"paused\"", "\"parked\"", "\"succeeded\"",
    "\"abandoned\"", "\"cancelled\"", "[]", "{}", "[1,2]", "[0,0]", "[9223372036854775807,0]",
    "[0,-9223372036854775808]", "[\"a\",\"a\"]", "\"00000001-0000-0000-0000-000000000001\"",
    "{\"a\":\"b\"}", "{\"\":\"b\"}", "{\"a\":1}", "\"AAAA\"", "\"A\"", "\"key 1\"",
    "1" + String(repeating: "0", count: 400),
    String(repeating: "[", count: 64) + String(repeating: "]", count: 64),
    String(repeating: "{\"a\":", count: 200),
  ]
  private static let fields = [
    "id", "name", "priority", "created", "available", "maxRetries", "backoff", "key", "tags",
    "limit",
    "expires", "schema", "state", "retries", "interruptions", "error", "failed", "ended", "payload",
    "data", "place", "keyless", "replace", "keep", "at", "until", "before", "latest", "version",
    "generation", "format", "more", "value", "metadata", "unheard",
  ]
  private static let kinds = [
    "header", "insert", "task", "compacted", "begin", "succeed", "retry", "abandon", "release",
    "park",
    "cancel", "pause", "resume", "restart", "remove", "extend", "unpark", "prune", "rebase",
    "value", "interruption", "seal", "create", "stored", "edit", "teleport", "",
  ]

  /// Makes a forged file from two real files.
  mutating func forged(_ file: RealFile, _ other: RealFile) -> [UInt8] {
    var lines = Self.rests(of: file.bytes)
    for _ in 0..<1 + pick(4) {
      let index = pick(lines.count)
      switch pick(9) {
      case 0: damage.change(&lines[index])
      case 1: replaceValue(in: &lines[index])
      case 2: addField(to: &lines[index])
      case 3: replaceKind(in: &lines[index])
      case 4: lines.insert(lines[index], at: pick(lines.count))
      case 5: lines.swapAt(index, pick(lines.count))
      case 6: lines.remove(at: index)
      case 7:
        let foreign = Self.rests(of: other.bytes)
        lines.insert(foreign[pick(foreign.count)], at: index)
      default: renumber(&lines[index])
      }
      if lines.isEmpty { return [] }
      for index in lines.indices where lines[index].isEmpty { lines[index] = [0x22] }
    }
    if pick(8) > 0 { lines = Self.numbered(lines, keepsDurable: pick(2) == 0) }
    return lines.flatMap(ForgedFile.line)
  }

  /// The part of each line after the checksum.
  private static func rests(of bytes: [UInt8]) -> [[UInt8]] {
    bytes.split(separator: 0x0A).map { Array($0.dropFirst(#"{"c":"00000000"#.utf8.count)) }
  }

  // MARK: Values

  private mutating func replaceValue(in line: inout [UInt8]) {
    let starts = line.indices.filter { line[$0] == UInt8(ascii: ":") }
    guard !starts.isEmpty else { return }
    let start = starts[pick(starts.count)] + 1
    var scanner = JSONScanner(line, start..<line.count)
    let range = scanner.skipValue() ?? start..<min(line.count, start + 1)
    line.replaceSubrange(range.lowerBound..<min(range.upperBound, line.count), with: value())
  }

  private mutating func value() -> [UInt8] { Array(pick(Self.values).utf8) }

  private mutating func addField(to line: inout [UInt8]) {
    let field = Array(",\"\(pick(Self.fields))\":".utf8)
    line.insert(contentsOf: field + value(), at: max(0, line.count - 1))
  }

  private mutating func replaceKind(in line: inout [UInt8]) {
    let mark = Array(#""k":""#.utf8)
    guard let start = line.firstRange(of: mark)?.upperBound,
      let end = line[start...].firstIndex(of: 0x22)
    else { return }
    line.replaceSubrange(start..<end, with: Array(pick(Self.kinds).utf8))
  }

  // MARK: Numbers

  private mutating func renumber(_ line: inout [UInt8]) {
    guard let body = Self.body(of: line) else { return }
    let more = pick(3) == 0 ? "\"more\":true," : ""
    line = Array("\",\"b\":\(number()),\"s\":\(number()),\(more)".utf8) + body
  }

  private mutating func number() -> String {
    pick(["0", "1", "5", "18446744073709551615", "9223372036854775808", "18446744073709551616"])
  }

  /// Numbers the lines, and sets the number up to which each line marks earlier lines as durable.
  private static func numbered(_ lines: [[UInt8]], keepsDurable: Bool) -> [[UInt8]] {
    lines.enumerated().map { number, line in
      guard let body = body(of: line) else { return line }
      let durable = keepsDurable ? (numbers(of: line)?.durable ?? 0) : 0
      return Array("\",\"b\":\(min(durable, UInt64(number))),\"s\":\(number),".utf8) + body
    }
  }

  private static func numbers(of line: [UInt8]) -> (durable: UInt64, end: Int)? {
    var scanner = JSONScanner(line, line.indices)
    guard scanner.skip(#"","b":"#), let durable = scanner.readSequenceNumber(),
      scanner.skip(#","s":"#), scanner.readSequenceNumber() != nil, scanner.skip(",")
    else { return nil }
    return (durable, scanner.position)
  }

  /// The part of a line after its numbers, or `nil` if the numbers can't be read.
  private static func body(of line: [UInt8]) -> ArraySlice<UInt8>? {
    numbers(of: line).map { line[$0.end...] }
  }
}
