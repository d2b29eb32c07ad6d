/// The lines that begin in one part of a file, and what they say.
///
/// A part is read without a look at the others, so that several may be read at once. Whether the
/// lines may stand where they do is not asked here: ``JournalReader`` goes through the parts in order.
struct JournalPart: Sendable {
  struct Line: Sendable {
    /// With the places that it has in the file.
    let line: JournalLine
    let range: Range<Int>
    let entry: Result<JournalEntry, JournalDecodingError>
  }

  /// Of most lines that begin in a part, the last one ends within so many bytes behind it.
  private static let usualOverhang = 4 << 10

  /// In bytes.
  private static let usualLineLength = 200

  /// Each is moved out when it is taken, and not copied: then it is `nil`.
  private var lines: [Line?] = []
  private var takenCount = 0
  /// Whether a line follows that is not what was written, or has no end.
  private(set) var isCutShort = false
  /// Why the part could not be read; it has no lines then.
  private(set) var failure: SystemCallError?

  init(of source: JournalSource, linesBeginningIn range: Range<Int>) {
    do throws(SystemCallError) {
      // The byte before says whether a line begins with the part.
      let start = max(0, range.lowerBound - 1)
      let end = min(source.count, range.upperBound + Self.usualOverhang)
      var bytes = try source.read(start..<end)
      guard let first = Self.firstLine(in: bytes, isBeginning: range.lowerBound == 0),
        start + first < range.upperBound
      else { return }
      try Self.readToLineEnd(source, from: start, linesBeginningIn: range, &bytes)
      readLines(bytes, at: start, from: first, before: range.upperBound - start)
    } catch {
      failure = error
    }
  }

  mutating func popFirstLine() -> Line? {
    guard takenCount < lines.count else { return nil }
    defer { takenCount += 1 }
    return lines[takenCount].take()
  }

  /// Reads on to the end of the last line, as far as it may be read.
  ///
  /// Only for a part in which a line begins: of a very long one, every part would read the rest.
  private static func readToLineEnd(
    _ source: JournalSource,
    from start: Int,
    linesBeginningIn range: Range<Int>,
    _ bytes: inout [UInt8]
  ) throws(SystemCallError) {
    let limit = min(source.count, range.upperBound + JournalLine.maxLength + 1)
    while start + bytes.count < limit, bytes.lineFeed(from: range.upperBound - 1 - start) == nil {
      let end = start + bytes.count
      let more = try source.read(end..<min(limit, end + bytes.count))
      guard !more.isEmpty else { return }
      bytes += more
    }
  }

  /// Where the first line begins, behind what belongs to one of an earlier part.
  private static func firstLine(in bytes: [UInt8], isBeginning: Bool) -> Int? {
    isBeginning ? 0 : bytes.lineFeed(from: 0).map { $0 + 1 }
  }

  private mutating func readLines(_ bytes: [UInt8], at start: Int, from first: Int, before end: Int)
  {
    var decoder = JournalDecoder(bytes)
    lines.reserveCapacity(bytes.count / Self.usualLineLength)
    var position = first
    while position < min(end, bytes.count) {
      guard let end = bytes.lineFeed(from: position), let line = JournalLine(bytes, position..<end)
      else {
        isCutShort = true
        return
      }
      lines.append(
        Line(
          line: line.moved(by: start),
          range: start + position..<start + end,
          entry: decoder.result(of: line)
        )
      )
      position = end + 1
    }
  }
}

extension JournalDecoder {
  fileprivate mutating func result(
    of line: JournalLine
  ) -> Result<JournalEntry, JournalDecodingError> {
    do throws(JournalDecodingError) {
      return .success(try entry(of: line))
    } catch {
      return .failure(error)
    }
  }
}
