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
  /// How many lines behind the first torn one can be read.
  var tornLineCount = 0
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
  /// The system does not give its bytes.
  case unreadable(SystemCallError)
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
///
/// What is read comes in parts, so that others can be read while one is taken in.
struct JournalReader {
  private struct Place {
    let line: JournalPart.Line
    let number: Int
  }

  /// Of so many lines of one batch it is kept what they say until the batch is whole; of more, they
  /// are read once more then.
  static let maxBatchInMemory = 1 << 16

  /// In tasks: how many are awaited, at most.
  private static let maxRoom = 4e6
  /// How many bytes are read at a time to look for lines behind a bad one.
  private static let searchSize = 1 << 20

  private let source: JournalSource
  /// Parts that were read and not taken in, from the last one to the first.
  private var parts: [JournalPart] = []
  private var contents = JournalContents()
  private var position = 0
  private var lineNumber = 1
  /// The first line of the batch that has begun and not ended, and where it begins.
  private var batchStart: (line: JournalLine, offset: Int)?
  /// What the first lines of that batch say; each is moved out when it is replayed.
  private var batch: [Place?] = []
  /// Where they end.
  private var batchKeptEnd = 0
  /// How many lines of that batch there are.
  private var batchCount: UInt64 = 0
  /// Where batches begin that may still be unsynced, with their first sequence numbers, from an
  /// index on.
  private var recentBatches: [(sequence: UInt64, offset: Int)] = []
  private var firstRecent = 0
  /// Whether a line has come behind which no `task` may stand.
  private var isPastTasks = false
  private var problem: JournalProblem?
  /// Whether what follows is torn.
  private var isTorn = false

  init(_ source: JournalSource) { self.source = source }

  /// Whether nothing more is to be added, and all that was is taken in.
  var isDone: Bool { parts.isEmpty || isTorn || problem != nil }

  /// What the file holds, when all is taken in.
  func end() throws(JournalProblem) -> JournalContents {
    if let problem { throw problem }
    guard contents.nextSequence > 0 else { throw .notAJournal }
    return contents
  }

  /// Adds the parts that come next; none at the end of the file.
  mutating func add(_ parts: [JournalPart]) {
    self.parts = parts.reversed()
    makeRoom()
  }

  /// Makes room for the tasks that the file has if its rest is like what was taken in; for some of
  /// them, if those would be very many: the rest may be nothing.
  private mutating func makeRoom() {
    guard position > 0 else { return }
    let share = Double(source.count) / Double(position)
    let count = Double(contents.table.taskCount) * share
    contents.table.reserveCapacity(Int(min(count, Self.maxRoom)))
  }

  /// Takes in what was added.
  mutating func takeIn() {
    do throws(JournalProblem) {
      while var part = parts.popLast(), !isTorn {
        if let failure = part.failure { throw .unreadable(failure) }
        while let line = part.popFirstLine() { try takeIn(line) }
        guard part.isCutShort else { continue }
        try refuseDamage()
        isTorn = true
      }
    } catch {
      problem = error
    }
  }

  private mutating func takeIn(_ found: consuming JournalPart.Line) throws(JournalProblem) {
    let line = found.line
    try check(line)
    let start = batchStart ?? (line, found.range.lowerBound)
    batchStart = start
    position = found.range.upperBound + 1
    if batch.count < Self.maxBatchInMemory {
      batch.append(Place(line: found, number: lineNumber))
      batchKeptEnd = position
    }
    batchCount += 1
    lineNumber += 1
    if !line.isContinued { try acceptBatch(from: start.offset, start.line) }
  }

  /// Refuses a line that is whole and can't stand where it does.
  private func check(_ line: JournalLine) throws(JournalProblem) {
    let expected = contents.nextSequence + batchCount
    guard line.sequence == expected else {
      throw damage("it has the number \(line.sequence) where \(expected) should be")
    }
    guard line.firstUnsynced <= line.sequence else {
      throw damage("it says that it was stored before it was written")
    }
    if let first = batchStart?.line, first.firstUnsynced != line.firstUnsynced {
      throw damage("the batch before it has no end")
    }
  }

  /// The batch is whole.
  private mutating func acceptBatch(
    from start: Int,
    _ first: JournalLine
  ) throws(JournalProblem) {
    for index in batch.indices {
      if let place = batch[index].take() { try replay(place) }
    }
    try replayLines(from: batchKeptEnd, number: lineNumber - Int(batchCount) + batch.count)
    batch.removeAll(keepingCapacity: true)
    batchStart = nil
    recentBatches.append((first.sequence, start))
    // The batch that was just added is never passed: no line names one behind itself.
    while recentBatches[firstRecent].sequence < first.firstUnsynced { firstRecent += 1 }
    if firstRecent > recentBatches.count / 2 {
      recentBatches.removeFirst(firstRecent)
      firstRecent = 0
    }
    contents.unsyncedOffset = recentBatches[firstRecent].offset
    contents.nextSequence += batchCount
    contents.goodSize = position
    batchCount = 0
  }

  /// Reads once more, and replays, the lines from an offset on up to the present position.
  private mutating func replayLines(
    from offset: Int,
    number firstNumber: Int
  ) throws(JournalProblem) {
    var (start, number) = (offset, firstNumber)
    while start < position {
      let end = min(position, start + Self.partSize)
      var part = JournalPart(of: source, linesBeginningIn: start..<end)
      if let failure = part.failure { throw .unreadable(failure) }
      while let line = part.popFirstLine() {
        try replay(Place(line: line, number: number))
        number += 1
      }
      start = end
    }
    guard number == lineNumber else { throw damage("it has changed since it was read") }
  }

  // MARK: Damage

  private func damage(_ reason: String) -> JournalProblem {
    .damaged(line: lineNumber, byte: position, reason: reason)
  }

  /// Refuses a bad line if one behind it knows that it, or the batch that it is in, was stored.
  private mutating func refuseDamage() throws(JournalProblem) {
    let hasHeader = contents.nextSequence > 0 || batchCount > 0
    var lineCount = 0
    try forEachLineOfRest { line throws(JournalProblem) in
      guard hasHeader, line.firstUnsynced <= contents.nextSequence else {
        throw damage("its checksum is wrong, and later lines show that it was stored")
      }
      lineCount += 1
    }
    contents.tornLineCount = lineCount
    guard hasHeader else {
      let start = try read(0..<min(source.count, JournalLine.maxEnvelopeLength * 4))
      if let end = start.lineFeed(from: 0), JournalLine(beforeReturnIn: start, 0..<end) != nil {
        throw damage(JournalLine.returnFlaw)
      }
      throw .notAJournal
    }
    let end = try read(max(position, source.count - JournalLine.maxSealLength)..<source.count)
    if let seal = JournalLine(sealAtEndOf: end), seal.firstUnsynced > contents.nextSequence {
      throw damage("the line feed behind it is lost, and a seal shows that it was stored")
    }
  }

  /// Calls the body with each good line behind the present position: there may be much, and most
  /// of it nothing.
  private func forEachLineOfRest(
    _ body: (JournalLine) throws(JournalProblem) -> Void
  ) throws(JournalProblem) {
    // The bytes behind the last line feed, as far as they may still become a line.
    var bytes: [UInt8] = []
    var isTooLong = false
    var offset = position
    while offset < source.count {
      var searched = bytes.count
      var start = 0
      bytes += try read(offset..<min(source.count, offset + Self.searchSize))
      offset += Self.searchSize
      while let end = bytes.lineFeed(from: searched) {
        if !isTooLong, let line = JournalLine(bytes, start..<end) { try body(line) }
        isTooLong = false
        start = end + 1
        searched = start
      }
      isTooLong = isTooLong || bytes.count - start > JournalLine.maxLength
      bytes.removeFirst(isTooLong ? bytes.count : start)
    }
  }

  private func read(_ range: Range<Int>) throws(JournalProblem) -> [UInt8] {
    do { return try source.read(range) } catch { throw .unreadable(error) }
  }

  // MARK: Replay

  private mutating func replay(_ place: Place) throws(JournalProblem) {
    let (line, range) = (place.line.line, place.line.range)
    func damage(_ reason: String) -> JournalProblem {
      .damaged(line: place.number, byte: range.lowerBound, reason: reason)
    }
    let entry: JournalEntry
    do throws(JournalDecodingError) {
      entry = try place.line.entry.get()
    } catch {
      switch error {
      case .unknownKind(let kind): throw .unknownKind(kind, line: place.number)
      case .malformed(let reason): throw damage(reason)
      }
    }
    if case .seal = entry { contents.isSealed = true } else { contents.isSealed = false }
    switch entry {
    case .header(let version, let generation):
      guard line.sequence == 0 else { throw damage("it is a second header") }
      guard version <= JournalEntry.formatVersion else { throw .newerVersion(version) }
      contents.version = version
      contents.generation = generation
    case .task, .compacted, .change, .begin, .interruption, .seal:
      guard line.sequence > 0 else { throw .notAJournal }
      if case .task = entry, isPastTasks { throw damage("it stands behind changes") }
      isPastTasks = isPastTasks || !entry.isOfSnapshot
      let byteCount = line.body.count + JournalLine.maxEnvelopeLength
      guard contents.table.replay(entry, byteCount: byteCount) else {
        throw damage("it does not fit the lines before it")
      }
      if case .compacted(let date, let bytesBefore) = entry {
        contents.lastCompaction = JSONFileStatistics.Compaction(
          date: date,
          bytesBefore: bytesBefore,
          bytesAfter: range.upperBound + 1
        )
      }
    }
  }
}
