/// What a file was found to hold.
struct JournalContents: Sendable {
  var table = TaskTable()
  var version = 0
  var generation = 0
  var lastCompaction: JSONFileStatistics.Compaction?
  /// How many tasks had begun and not ended.
  var interruptionCount = 0
  /// Whether the last good line says that the file was closed in good order.
  var isSealed = false
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
///
/// The lines of a batch count when its last one is there. They were written at once: all of them
/// name the same first unsynced line.
struct JournalReader {
  private struct Place {
    let line: JournalLine
    let number: Int
    let range: Range<Int>
  }

  private let bytes: [UInt8]
  private var decoder: JournalDecoder
  private var contents = JournalContents()
  private var position = 0
  private var lineNumber = 1
  /// The lines of the batch that has begun and not ended.
  private var batch: [Place] = []
  /// Where batches begin that may still be unsynced, with their first sequence numbers, from an
  /// index on.
  private var recentBatches: [(sequence: UInt64, offset: Int)] = []
  private var firstRecent = 0
  /// Whether a line has come behind which no `task` may stand.
  private var isPastTasks = false

  static func read(_ bytes: [UInt8]) throws(JournalProblem) -> JournalContents {
    var contents = try readAsWritten(bytes)
    contents.interruptionCount = contents.table.interruptLeased()
    return contents
  }

  /// As `read(_:)`, but tasks that had begun and not ended are being performed still.
  static func readAsWritten(_ bytes: [UInt8]) throws(JournalProblem) -> JournalContents {
    var reader = JournalReader(bytes: bytes)
    try reader.readLines()
    return reader.contents
  }

  private init(bytes: [UInt8]) {
    self.bytes = bytes
    decoder = JournalDecoder(bytes)
  }

  private mutating func readLines() throws(JournalProblem) {
    while position < bytes.count {
      guard let end = lineEnd(from: position), let line = JournalLine(bytes, position..<end) else {
        try refuseDamage()
        break
      }
      try check(line)
      batch.append(Place(line: line, number: lineNumber, range: position..<end))
      position = end + 1
      lineNumber += 1
      if !line.isContinued { try accept() }
    }
    guard contents.nextSequence > 0 else { throw .notAJournal }
  }

  /// Refuses a line that is whole and can't stand where it does.
  private func check(_ line: JournalLine) throws(JournalProblem) {
    let expected = contents.nextSequence + UInt64(batch.count)
    guard line.sequence == expected else {
      throw damage("it has the number \(line.sequence) where \(expected) should be")
    }
    guard line.firstUnsynced <= line.sequence else {
      throw damage("it says that it was stored before it was written")
    }
    if let first = batch.first, first.line.firstUnsynced != line.firstUnsynced {
      throw damage("the batch before it has no end")
    }
  }

  /// The batch is whole.
  private mutating func accept() throws(JournalProblem) {
    for place in batch { try replay(place) }
    let first = batch[0]
    recentBatches.append((first.line.sequence, first.range.lowerBound))
    // The batch that was just added is never passed: no line names one behind itself.
    while recentBatches[firstRecent].sequence < first.line.firstUnsynced { firstRecent += 1 }
    if firstRecent > recentBatches.count / 2 {
      recentBatches.removeFirst(firstRecent)
      firstRecent = 0
    }
    contents.unsyncedOffset = recentBatches[firstRecent].offset
    contents.nextSequence += UInt64(batch.count)
    contents.goodSize = position
    batch.removeAll(keepingCapacity: true)
  }

  private func lineEnd(from start: Int) -> Int? { bytes.lineFeed(from: start) }

  // MARK: Damage

  private func damage(_ reason: String) -> JournalProblem {
    .damaged(line: lineNumber, byte: position, reason: reason)
  }

  /// Refuses a bad line if one behind it knows that it, or the batch that it is in, was stored.
  private func refuseDamage() throws(JournalProblem) {
    let hasHeader = contents.nextSequence > 0 || !batch.isEmpty
    var start = position
    while let end = lineEnd(from: start) {
      if let line = JournalLine(bytes, start..<end),
        line.firstUnsynced > contents.nextSequence || !hasHeader
      {
        throw damage("its checksum is wrong, and later lines show that it was stored")
      }
      start = end + 1
    }
    guard hasHeader else { throw .notAJournal }
    if let seal = JournalLine(sealAtEndOf: bytes), seal.firstUnsynced > contents.nextSequence {
      throw damage("the line feed behind it is lost, and a seal shows that it was stored")
    }
  }

  // MARK: Replay

  private mutating func replay(_ place: Place) throws(JournalProblem) {
    func damage(_ reason: String) -> JournalProblem {
      .damaged(line: place.number, byte: place.range.lowerBound, reason: reason)
    }
    let entry: JournalEntry
    do throws(JournalDecodingError) {
      entry = try decoder.entry(of: place.line)
    } catch {
      switch error {
      case .unknownKind(let kind): throw .unknownKind(kind, line: place.number)
      case .malformed(let reason): throw damage(reason)
      }
    }
    if case .seal = entry { contents.isSealed = true } else { contents.isSealed = false }
    switch entry {
    case .header(let version, let generation):
      guard place.line.sequence == 0 else { throw damage("it is a second header") }
      guard version <= JournalEntry.formatVersion else { throw .newerVersion(version) }
      contents.version = version
      contents.generation = generation
    case .task, .compacted, .change, .begin, .interruption, .seal:
      guard place.line.sequence > 0 else { throw .notAJournal }
      if case .task = entry, isPastTasks { throw damage("it stands behind changes") }
      isPastTasks = isPastTasks || !entry.isOfSnapshot
      let byteCount = place.line.body.count + JournalLine.maxEnvelopeLength
      guard contents.table.replay(entry, byteCount: byteCount) else {
        throw damage("it does not fit the lines before it")
      }
      if case .compacted(let date, let bytesBefore) = entry {
        contents.lastCompaction = JSONFileStatistics.Compaction(
          date: date,
          bytesBefore: bytesBefore,
          bytesAfter: place.range.upperBound + 1
        )
      }
    }
  }
}
