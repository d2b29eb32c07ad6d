@testable import SteadfastQueue

// Each change keeps the length of the line.

extension [UInt8] {
  func changingLines(_ change: (inout [UInt8]) -> Void) -> [UInt8] {
    var lines = split(separator: 0x0A, omittingEmptySubsequences: false).map { Array($0) }
    for index in lines.indices { change(&lines[index]) }
    return Array(lines.joined(separator: [0x0A]))
  }

  /// Returns the bytes with each line's number replaced by its index, with as many digits.
  func renumberingLines() -> [UInt8] {
    var number: UInt64 = 0
    return changingLines { line in
      line.replaceNumber(behind: "s", by: number)
      number += 1
    }
  }

  /// Returns the bytes with lines that mark all lines before their batch as durable.
  func claimingAllLinesDurable() -> [UInt8] {
    var start: UInt64?
    return changingLines { line in
      guard let read = JournalLine(line, line.indices) else { return }
      let first = start ?? read.sequence
      start = read.isContinued ? first : nil
      line.claimDurable(.upTo(first))
    }
  }

  /// Whether a line can't be read.
  var hasBadLine: Bool {
    split(separator: 0x0A, omittingEmptySubsequences: false).dropLast()
      .contains { JournalLine(Array($0), 0..<$0.count) == nil } || !isEmpty && last != 0x0A
  }

  /// The sequence number of the first line.
  var firstSequence: UInt64 {
    JournalLine(self, 0..<(firstIndex(of: 0x0A) ?? count))?.sequence ?? 0
  }

  /// Whether a compaction has written tasks into the bytes.
  var holdsKeptTasks: Bool { range(of: #""k":"task""#) != nil }
}

extension RandomAccessCollection<UInt8> {
  /// The range of the first occurrence of the string.
  fileprivate func range(of text: String) -> Range<Index>? {
    let text = Array(text.utf8)
    var start = startIndex
    while let end = index(start, offsetBy: text.count, limitedBy: endIndex) {
      if self[start..<end].elementsEqual(text) { return start..<end }
      start = index(after: start)
    }
    return nil
  }

  /// Whether the bytes are a single line of this kind.
  func isLine(ofKind kind: String) -> Bool {
    firstIndex(of: 0x0A).map { index(after: $0) == endIndex } ?? false && isOfKind(kind)
  }

  func isOfKind(_ kind: String) -> Bool { range(of: #""k":"\#(kind)""#) != nil }
}

/// The bytes of a single line.
extension [UInt8] {
  /// The lines that a line marks as durable.
  enum Durable {
    case none, upTo(UInt64)
  }

  private static var checksumStart: Int { #"{"c":""#.utf8.count }

  /// Corrects the checksum of the line.
  mutating func mendChecksum() {
    let start = Self.checksumStart
    guard count > start + 8, starts(with: #"{"c":""#.utf8) else { return }
    let sum = CRC32C.checksum(self[(start + 8)...])
    for digit in 0..<8 {
      self[start + digit] = Hexadecimal.digit(UInt64(sum >> (28 - 4 * UInt32(digit))))
    }
  }

  mutating func mendChecksumIfClosed() {
    if last == UInt8(ascii: "}") { mendChecksum() }
  }

  /// Changes which lines the line marks as durable.
  mutating func claimDurable(_ durable: Durable) {
    switch durable {
    case .none: replaceNumber(behind: "b", by: 0)
    case .upTo(let sequence): replaceNumber(behind: "b", by: sequence)
    }
  }

  /// Replaces the number after `key`, or uses the lowest number that has as many digits.
  fileprivate mutating func replaceNumber(behind key: String, by number: UInt64) {
    guard JournalLine(self, indices) != nil, let key = range(of: #""\#(key)":"#) else { return }
    let digits = self[key.upperBound...].prefix { $0 >= 0x30 && $0 <= 0x39 }
    let least = [UInt8(ascii: "1")] + Self(repeating: UInt8(ascii: "0"), count: digits.count - 1)
    let text = Self(String(number).utf8)
    guard text.count <= digits.count else { return }
    replaceSubrange(digits.indices, with: text.count == digits.count ? text : least)
    mendChecksum()
  }

  /// Moves the mark that the batch continues to a position where readers don't find the mark.
  mutating func moveBatchMark() {
    guard let line = JournalLine(self, indices), line.isContinued,
      let mark = range(of: #""more":true,"#)
    else { return }
    removeSubrange(mark)
    insert(contentsOf: #","more":true"#.utf8, at: count - 1)
    mendChecksum()
  }

  /// Replaces a line with a seal of the same length, so that its contents are lost.
  mutating func replaceWithSeal(ifKind kind: String? = nil) {
    guard let line = JournalLine(self, indices), kind.map(isOfKind) ?? true else { return }
    let start = Self(#""k":"seal","as":""#.utf8)
    let end = Self(#""}"#.utf8)
    let padding = line.body.count - start.count - end.count
    guard padding >= 0 else { return }
    replaceSubrange(
      line.body,
      with: start + Self(repeating: UInt8(ascii: "-"), count: padding) + end
    )
    mendChecksum()
  }

  /// Replaces the number for a task's position in the order with the lowest of as many digits.
  mutating func resetPlace() {
    if isOfKind("task") { replaceNumber(behind: "place", by: 1) }
  }

  /// Renames a field, so that no reader finds it.
  mutating func hideField(_ name: String, inLinesOf kind: String) {
    guard JournalLine(self, indices) != nil, isOfKind(kind),
      let field = range(of: #""\#(name)":"#)
    else { return }
    self[field.lowerBound + 1] = UInt8(ascii: "_")
    mendChecksum()
  }
}
