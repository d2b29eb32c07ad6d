/// The lines that begin in one part of a file, and what they say.
///
/// A part is read independently of the others, so several can be read at the same time. It does not
/// check whether the lines may stand where they do: ``JournalReader`` does so, going through the
/// parts in order.
struct JournalChunk: Sendable {
  struct Line: Sendable {
    /// The line, with its offsets in the file.
    let line: JournalLine
    let range: Range<Int>
    let entry: Result<JournalEntry, JournalDecodingError>
  }

  /// How far beyond the end of a part its last line usually ends, at most, in bytes.
  private static let usualOverhang = 4 << 10

  /// The usual length of a line, in bytes.
  private static let usualLineLength = 200

  private var lines = FIFOQueue<Line>()
  /// Whether the lines are followed by one that is not what was written, or has no end.
  private(set) var isCutShort = false
  /// Why the part could not be read; if this is set, the part has no lines.
  private(set) var failure: SystemCallError?

  init(of source: JournalSource, linesBeginningIn range: Range<Int>) {
    do throws(SystemCallError) {
      // The byte before the part shows whether a line begins with the part.
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

  mutating func popFirstLine() -> Line? { lines.popFirst() }

  /// Reads on to the end of the last line, or as far as a line may reach.
  ///
  /// Call this only for a part in which a line begins. Otherwise, every part of a very long line
  /// would read the rest of that line.
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

  /// Returns where the first line begins, after the end of a line that began in an earlier part.
  private static func firstLine(in bytes: [UInt8], isBeginning: Bool) -> Int? {
    isBeginning ? 0 : bytes.lineFeed(from: 0).map { $0 + 1 }
  }

  private mutating func readLines(_ bytes: [UInt8], at start: Int, from first: Int, before end: Int)
  {
    var decoder = JournalDecoder(bytes)
    lines = FIFOQueue(minimumCapacity: bytes.count / Self.usualLineLength)
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
