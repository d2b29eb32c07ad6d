/// What a file was found to hold.
struct JournalContents: Sendable {
  var table = TaskTable()
  var generation = 0
  /// How many tasks had begun and not ended.
  var interruptionCount = 0
  /// The sequence number of the line to write next.
  var nextSequence: UInt64 = 0
  /// Where the last good line ends; what follows is torn.
  var goodSize = 0
  /// Where the lines begin that the last good line did not know to be durable.
  var unsyncedOffset = 0
}

/// Why a file can't be served.
enum JournalProblem: Error, Equatable {
  /// The first line is not a header of this format.
  case notAJournal
  case newerVersion(Int)
  case unknownKind(String, line: Int)
  /// A line was durable, or follows one that was, and is not what was written.
  case damaged(line: Int, byte: Int, reason: String)
}

/// Reads a file: tells a torn end, which an interrupted write leaves and nobody was promised, from
/// damage, which is refused.
///
/// A write that is cut short by a crash leaves a line that is bad at the end of the file; but also,
/// because lines that no flush has covered yet may reach the disk in any order, good ones behind
/// it. Such lines do not know the bad one to be durable. So a bad line is damage if and only if a
/// good line behind it says that the bad one's sequence number was durable when it was written.
struct JournalReader {
  private let bytes: [UInt8]
  private var contents = JournalContents()
  private var position = 0
  private var lineNumber = 1
  /// Where lines begin that may still be unsynced, with their sequence numbers.
  private var recentLines: [(sequence: UInt64, offset: Int)] = []

  static func read(_ bytes: [UInt8]) throws(JournalProblem) -> JournalContents {
    var reader = JournalReader(bytes: bytes)
    try reader.readLines()
    return reader.contents
  }

  private init(bytes: [UInt8]) { self.bytes = bytes }

  private mutating func readLines() throws(JournalProblem) {
    while position < bytes.count {
      guard let end = lineEnd(from: position), let line = JournalLine(bytes, position..<end) else {
        try refuseDamage()
        break
      }
      guard line.sequence == contents.nextSequence else {
        throw .damaged(
          line: lineNumber,
          byte: position,
          reason: "it has the number \(line.sequence) where \(contents.nextSequence) should be"
        )
      }
      try replay(line)
      accept(line, end: end)
    }
    guard contents.nextSequence > 0 else { throw .notAJournal }
    contents.interruptionCount = contents.table.interruptLeased()
  }

  private mutating func accept(_ line: JournalLine, end: Int) {
    recentLines.append((line.sequence, position))
    let synced = recentLines.firstIndex { $0.sequence >= line.firstUnsynced } ?? 0
    recentLines.removeFirst(synced)
    contents.unsyncedOffset = recentLines[0].offset
    contents.nextSequence += 1
    contents.goodSize = end + 1
    position = end + 1
    lineNumber += 1
  }

  private func lineEnd(from start: Int) -> Int? { bytes[start...].firstIndex(of: 0x0A) }

  // MARK: Damage

  private func refuseDamage() throws(JournalProblem) {
    guard contents.nextSequence > 0 else { throw .notAJournal }
    var start = position
    while let end = lineEnd(from: start) {
      if let line = JournalLine(bytes, start..<end), line.firstUnsynced > contents.nextSequence {
        throw .damaged(
          line: lineNumber,
          byte: position,
          reason: "its checksum is wrong, and later lines show that it was stored"
        )
      }
      start = end + 1
    }
  }

  // MARK: Replay

  private mutating func replay(_ line: JournalLine) throws(JournalProblem) {
    let entry: JournalEntry
    do throws(JournalDecodingError) {
      entry = try JournalDecoder.entry(of: line, in: bytes)
    } catch {
      switch error {
      case .unknownKind(let kind): throw .unknownKind(kind, line: lineNumber)
      case .malformed(let reason):
        throw .damaged(line: lineNumber, byte: position, reason: reason)
      }
    }
    switch entry {
    case .header(let version, let generation):
      guard line.sequence == 0 else {
        throw .damaged(line: lineNumber, byte: position, reason: "it is a second header")
      }
      guard version <= JournalEntry.formatVersion else { throw .newerVersion(version) }
      contents.generation = generation
    case .change, .begin, .interruption, .seal:
      guard line.sequence > 0 else { throw .notAJournal }
      guard contents.table.replay(entry) else {
        throw .damaged(
          line: lineNumber,
          byte: position,
          reason: "it does not fit the lines before it"
        )
      }
    }
  }
}
