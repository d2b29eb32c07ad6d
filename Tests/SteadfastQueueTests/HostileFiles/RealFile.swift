@testable import SteadfastQueue

/// A file that the library has written, with the positions of its lines.
struct RealFile {
  struct Line {
    /// The range of the line, without its line feed.
    let range: Range<Int>
    let sequence: UInt64
    let firstUnsynced: UInt64
    let isContinued: Bool
  }

  let bytes: [UInt8]
  let lines: [Line]
  init(_ bytes: [UInt8]) {
    self.bytes = bytes
    var lines: [Line] = []
    var start = 0
    while let end = bytes[start...].firstIndex(of: 0x0A), let line = JournalLine(bytes, start..<end)
    {
      lines.append(
        Line(
          range: start..<end,
          sequence: line.sequence,
          firstUnsynced: line.firstUnsynced,
          isContinued: line.isContinued
        )
      )
      start = end + 1
    }
    precondition(start == bytes.count, "the file was not written by the library")
    self.lines = lines
  }

  /// The last line, if it is a seal: the line that is written when a file is closed.
  var seal: Line? {
    lines.last.flatMap { bytes[$0.range].ends(with: #""k":"seal"}"#.utf8) ? $0 : nil }
  }

  /// The tasks after the first `lineCount` lines, the last of which ends a batch.
  func tasks(after lineCount: Int) throws -> [String] {
    let end = lines[lineCount - 1].range.upperBound + 1
    return try JournalReader.read(Array(bytes[..<end])).table.contentLines()
  }
}

/// The correct result of reading a damaged file.
///
/// The result is derived by comparing the lines with the original lines byte for byte, without
/// checksums, and without parsing changed lines.
enum ExpectedReading: Equatable {
  /// The tasks of the first lines are recovered, and nothing else.
  case recovered(lineCount: Int)
  case refused(line: Int, byte: Int)
  case notAJournal

  init(of bytes: [UInt8], from original: RealFile) {
    let sequences = Dictionary(
      uniqueKeysWithValues: original.lines.enumerated().map { index, line in
        (original.bytes[line.range], index)
      }
    )
    // Each line with its index in the original file: `nil` if it is changed or has no line feed.
    var found: [(start: Int, line: Int?)] = []
    var start = 0
    while start < bytes.count {
      let end = bytes[start...].firstIndex(of: 0x0A)
      found.append((start, end.flatMap { sequences[bytes[start..<$0]] }))
      start = end.map { $0 + 1 } ?? bytes.count
    }
    var whole = 0
    for (index, place) in found.enumerated() {
      if place.line == index {
        if !original.lines[index].isContinued { whole = index + 1 }
        continue
      }
      guard index > 0 else {
        let firstLine = bytes.prefix { $0 != 0x0A }
        let hasReturn = firstLine.last == 0x0D && sequences[firstLine.dropLast()] != nil
        let isKnown = hasReturn || found.contains { $0.line != nil }
        self = isKnown ? .refused(line: 1, byte: 0) : .notAJournal
        return
      }
      let isOutOfOrder = place.line != nil
      var later = found[index...].compactMap { $0.line.map { original.lines[$0] } }
      if let seal = original.seal, bytes.ends(with: original.bytes[seal.range] + [0x0A]) {
        later.append(seal)
      }
      let wasStored = later.contains { $0.firstUnsynced > UInt64(whole) }
      self =
        isOutOfOrder || wasStored
        ? .refused(line: index + 1, byte: place.start) : .recovered(lineCount: whole)
      return
    }
    self = found.isEmpty ? .notAJournal : .recovered(lineCount: whole)
  }
}

extension Collection where Element: Equatable {
  func ends(with other: some Collection<Element>) -> Bool {
    suffix(other.count).elementsEqual(other)
  }
}
