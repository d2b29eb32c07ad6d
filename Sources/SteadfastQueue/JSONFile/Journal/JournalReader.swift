import Dispatch
import Synchronization

/// Reads a file, and tells a torn end from damage.
///
/// An interrupted write leaves a torn end, and no caller was promised that it is durable. Damage is
/// refused.
///
/// A crash that cuts a write short leaves a bad line at the end of the file. Lines that no flush
/// has covered yet may reach the disk in any order, so there may also be good lines after the bad
/// one. Such lines do not say that the bad one is durable. So a bad line is damage if and only if a
/// good line after it says that the bad one's sequence number was durable when the good line was
/// written.
///
/// The lines of a batch count only if its last line is there. A batch is written at once, so all
/// its lines name the same first unsynced line.
///
/// The reader gets the file in parts, so that other parts can be read while one is taken in.
struct JournalReader {
  private struct Place {
    let line: JournalChunk.Line
    let number: Int
  }

  /// How many lines of a batch are held in memory until the batch is whole.
  ///
  /// If a batch has more, the others are read again then.
  static let maxBatchInMemory = 1 << 16

  /// The greatest number of tasks for which room is made in advance.
  private static let maxRoom = 4e6
  /// How many bytes are read at a time in search of lines after a bad one.
  private static let searchSize = 1 << 20

  private let source: JournalSource
  /// Parts that were read and not taken in, in reverse order.
  private var parts: [JournalChunk] = []
  private var contents = JournalContents()
  private var position = 0
  private var lineNumber = 1
  /// The first line of the batch that has begun and not ended, and its offset.
  private var batchStart: (line: JournalLine, offset: Int)?
  /// The first lines of that batch; each is moved out when it is replayed.
  private var batch: [Place?] = []
  /// The offset at which those lines end.
  private var batchKeptEnd = 0
  /// How many lines of that batch were taken in.
  private var batchCount: UInt64 = 0
  /// The offsets of batches that may still be unsynced, and their first sequence numbers.
  private var recentBatches = FIFOQueue<(sequence: UInt64, offset: Int)>()
  /// Whether a line was taken in after which no `task` line may come.
  private var isPastTasks = false
  private var problem: JournalProblem?
  /// Whether the rest of the file is torn.
  private var isTorn = false

  init(_ source: JournalSource) { self.source = source }

  /// Whether the reader needs no more parts, and is done with those that were added.
  var isDone: Bool { parts.isEmpty || isTorn || problem != nil }

  /// Returns what the file holds, when the reader is done.
  func end() throws(JournalProblem) -> JournalContents {
    if let problem { throw problem }
    guard contents.nextSequence > 0 else { throw .notAJournal }
    var contents = contents
    contents.table.promoteSuccessorsWithoutHolder()
    return contents
  }

  /// Adds the next parts, or none at the end of the file.
  mutating func add(_ parts: [JournalChunk]) {
    self.parts = parts.reversed()
    makeRoom()
  }

  /// Makes room for as many tasks as the file has if its rest is like what was taken in.
  ///
  /// The room is limited to `maxRoom` tasks, as the rest may hold none.
  private mutating func makeRoom() {
    guard position > 0 else { return }
    let share = Double(source.count) / Double(position)
    let count = Double(contents.table.taskCount) * share
    contents.table.reserveCapacity(Int(min(count, Self.maxRoom)))
  }

  /// Takes in the parts that were added.
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

  private mutating func takeIn(_ found: consuming JournalChunk.Line) throws(JournalProblem) {
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

  /// Refuses a whole line that can't be where it is.
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

  /// Replays a batch that is whole.
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
    // This stops at the batch that was just added, at the latest: no line names a later one.
    while let oldest = recentBatches.first, oldest.sequence < first.firstUnsynced {
      _ = recentBatches.popFirst()
    }
    contents.unsyncedOffset = recentBatches.first?.offset ?? start
    contents.nextSequence += batchCount
    contents.goodSize = position
    batchCount = 0
  }

  /// Reads the lines from an offset to the present position again, and replays them.
  private mutating func replayLines(
    from offset: Int,
    number firstNumber: Int
  ) throws(JournalProblem) {
    var (start, number) = (offset, firstNumber)
    while start < position {
      let end = min(position, start + Self.partSize)
      var part = JournalChunk(of: source, linesBeginningIn: start..<end)
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

  /// Refuses a bad line if a later one says that the bad one, or its batch, was durable.
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

  /// Calls the body with each good line after the present position.
  ///
  /// The rest of the file may be long, with few lines in it, so it is read in pieces.
  private func forEachLineOfRest(
    _ body: (JournalLine) throws(JournalProblem) -> Void
  ) throws(JournalProblem) {
    // The bytes after the last line feed, as long as they can still become a line.
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
    case .task, .compacted, .change, .addition, .supersession, .restart, .value, .memory, .begin,
      .interruption, .seal:
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

extension JournalReader {
  /// The size of a part, in bytes; a file that is not longer is read by one thread.
  static var partSize: Int { 64 << 10 }
  /// How many parts are read while as many are taken in.
  ///
  /// This limits how much of a file is in memory at a time.
  private static var partsAtOnce: Int { 64 }

  static func read(_ bytes: [UInt8]) throws(JournalProblem) -> JournalContents {
    try read(JournalSource(bytes))
  }

  static func read(
    _ source: JournalSource,
    partSize: Int = partSize
  ) throws(JournalProblem) -> JournalContents {
    var contents = try readAsWritten(source, partSize: partSize)
    contents.interruptionCount = contents.table.interruptLeased()
    return contents
  }

  /// Does what `read(_:)` does, but leaves tasks running whose attempts have begun and not ended.
  static func readAsWritten(
    _ source: JournalSource,
    partSize: Int = partSize
  ) throws(JournalProblem) -> JournalContents {
    let reader = Mutex(JournalReader(source))
    var start = 0
    repeat {
      let end = min(source.count, start + partsAtOnce * partSize)
      let ranges = stride(from: start, to: end, by: partSize).map { $0..<min(end, $0 + partSize) }
      let parts = JournalChunk.read(ranges, of: source) { reader.withLock { $0.takeIn() } }
      reader.withLock { $0.add(parts) }
      start = end
    } while !reader.withLock(\.isDone)
    return try reader.withLock { reader throws(JournalProblem) in try reader.end() }
  }
}

extension JournalChunk {
  /// Reads parts of a file while `body` is performed, which is called once.
  fileprivate static func read(
    _ ranges: [Range<Int>],
    of source: JournalSource,
    during body: @Sendable () -> Void
  ) -> [JournalChunk] {
    guard ranges.count > 1 else {
      body()
      return ranges.map { JournalChunk(of: source, linesBeginningIn: $0) }
    }
    let parts = Mutex([JournalChunk?](repeating: nil, count: ranges.count))
    // Nothing here waits for another thread: if none is free, this thread does all the work.
    DispatchQueue.concurrentPerform(iterations: 1 + ranges.count) { index in
      guard index > 0 else { return body() }
      let part = JournalChunk(of: source, linesBeginningIn: ranges[index - 1])
      parts.withLock { $0[index - 1] = part }
    }
    return parts.withLock { $0.compactMap(\.self) }
  }
}

/// The bytes of a file, which are in memory, or are read from the file on demand.
///
/// While a file is opened, only some of its parts are in memory at a time. Any thread may read.
/// Nothing else may write the file at the same time.
struct JournalSource: Sendable {
  /// How many bytes there are.
  let count: Int
  private let bytes: @Sendable (Range<Int>) throws(SystemCallError) -> [UInt8]

  init(
    count: Int,
    _ bytes: @escaping @Sendable (Range<Int>) throws(SystemCallError) -> [UInt8]
  ) {
    self.count = count
    self.bytes = bytes
  }

  init(_ bytes: [UInt8]) {
    self.init(count: bytes.count) { range in
      range == bytes.indices ? bytes : Array(bytes[range])
    }
  }

  /// Reads a file at once if it is not longer than `sizeInMemory`, and otherwise on demand.
  init(
    _ file: any JournalFile,
    sizeInMemory: Int = JournalReader.partSize
  ) throws(SystemCallError) {
    let count = try file.size()
    if count <= sizeInMemory {
      self.init(try file.read(count, at: 0))
    } else {
      self.init(count: count) { range throws(SystemCallError) in
        try file.read(range.count, at: range.lowerBound)
      }
    }
  }

  /// The most zeros at the end of a file that may be reserved space.
  static var maxReservation: Int { 64 << 20 }

  /// Returns the bytes without the zeros at their end, which reserve space for lines.
  ///
  /// More zeros than a store reserves stay.
  func withoutReservation() throws(SystemCallError) -> JournalSource {
    var end = count
    while end > 0, count - end <= Self.maxReservation {
      let part = try read(max(0, end - min(Self.searchSize, max(64, count - end)))..<end)
      if let last = part.lastIndex(where: { $0 != 0 }) {
        let lines = end - part.count + last + 1
        return count - lines <= Self.maxReservation ? JournalSource(count: lines, bytes) : self
      }
      guard !part.isEmpty else { break }
      end -= part.count
    }
    return self
  }

  private static var searchSize: Int { 1 << 20 }

  /// Reads all bytes.
  func readAll() throws(JournalProblem) -> [UInt8] {
    do { return try read(0..<count) } catch { throw .unreadable(error) }
  }

  /// Returns the bytes in a range, or fewer if the file has become shorter.
  func read(_ range: Range<Int>) throws(SystemCallError) -> [UInt8] { try bytes(range) }
}

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

/// What a reader found in a file.
struct JournalContents: Sendable {
  var table = TaskTable()
  var version = 0
  var generation = 0
  var lastCompaction: JSONFileStatistics.Compaction?
  /// How many tasks had an attempt that began and did not end.
  var interruptionCount = 0
  /// Whether the last good line says that the file was closed properly.
  var isSealed = false
  /// The sequence number of the line to write next.
  var nextSequence: UInt64 = 0
  /// The offset at which the last good line ends; what follows is torn.
  var goodSize = 0
  /// How many lines after the first torn one can be read.
  var tornLineCount = 0
  /// The offset of the first line that the last good line did not know to be durable.
  var unsyncedOffset = 0
}

/// Why a file can't be used.
enum JournalProblem: Error, Equatable {
  /// The first line is not a header of this format.
  case notAJournal
  case newerVersion(Int)
  case unknownKind(String, line: Int)
  /// A line that was durable, or that follows such a line, is not what was written.
  case damaged(line: Int, byte: Int, reason: String)
  /// The system can't read the bytes of the file.
  case unreadable(SystemCallError)
}
