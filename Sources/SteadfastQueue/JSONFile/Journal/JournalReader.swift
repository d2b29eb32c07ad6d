import Dispatch
import Synchronization

/// Reads the contents of a file, and distinguishes a torn end, which a crash leaves, from damage.
///
/// Lines of a torn end were never acknowledged as durable, so they are ignored. A damaged file is
/// refused.
///
/// A crash before a flush may leave a bad line, and good lines after it, because the disk may store
/// them in any order. So every line records which earlier lines were durable when it was written. A
/// bad line is damage if a later good line says that the bad line was durable. Otherwise, it starts
/// the torn end.
///
/// A batch is lines that are written together. They count only if the batch's last line exists. All
/// lines of a batch have the same `firstUnsynced`.
///
/// The reader receives the file in parts, so that other threads can read the next parts in the
/// meantime.
struct JournalReader {
  private struct NumberedLine {
    let line: JournalChunk.Line
    let number: Int
  }

  /// The maximum number of lines of an incomplete batch to keep in memory.
  ///
  /// The other lines of a larger batch are read again when its last line was found.
  static let maxBatchInMemory = 1 << 16

  /// The maximum number of tasks for which to reserve memory.
  private static let maxReservedTasks = 4e6
  /// The number of bytes to read at a time, when searching for good lines after a bad one.
  private static let searchSize = 1 << 20

  private let source: JournalSource
  /// The parts that are not processed yet, in reverse order.
  private var parts: [JournalChunk] = []
  private var contents = JournalContents()
  private var position = 0
  private var lineNumber = 1
  /// The first line of the incomplete batch, and the offset of that line.
  private var batchStart: (line: JournalLine, offset: Int)?
  /// The first lines of the incomplete batch; a line is replaced by `nil` when it is replayed.
  private var batch: [NumberedLine?] = []
  /// The offset of the end of the last line in `batch`.
  private var batchInMemoryEnd = 0
  /// The number of processed lines of the incomplete batch.
  private var batchCount: UInt64 = 0
  /// The offsets and first sequence numbers of the batches that, according to the last line, may
  /// not be durable.
  private var recentBatches = FIFOQueue<(sequence: UInt64, offset: Int)>()
  /// Whether the lines of a compaction are over, so that no `task` line may follow.
  private var isPastTasks = false
  private var problem: JournalProblem?
  /// Whether the rest of the file is a torn end.
  private var isTorn = false

  init(_ source: JournalSource) { self.source = source }

  /// Whether the reader has processed all parts that were added, or needs no more.
  var isDone: Bool { parts.isEmpty || isTorn || problem != nil }

  /// Returns the contents of the file, when the reader is done.
  func finish() throws(JournalProblem) -> JournalContents {
    if let problem { throw problem }
    guard contents.nextSequence > 0 else { throw .notAJournal }
    var contents = contents
    contents.table.promoteSuccessorsWithoutHolder()
    return contents
  }

  /// Adds the next parts; none at the end of the file.
  mutating func add(_ parts: [JournalChunk]) {
    self.parts = parts.reversed()
    reserveTaskCapacity()
  }

  /// Reserves memory for the tasks of the whole file, assuming that the rest contains as many tasks
  /// as the processed lines.
  ///
  /// The number of tasks is limited, because the rest of the file may contain none.
  private mutating func reserveTaskCapacity() {
    guard position > 0 else { return }
    let share = Double(source.count) / Double(position)
    let count = Double(contents.table.taskCount) * share
    contents.table.reserveCapacity(Int(min(count, Self.maxReservedTasks)))
  }

  mutating func processParts() {
    do throws(JournalProblem) {
      while var part = parts.popLast(), !isTorn {
        if let failure = part.failure { throw .unreadable(failure) }
        while let line = part.popFirstLine() { try process(line) }
        guard part.endsAtBadLine else { continue }
        try throwIfDamaged()
        isTorn = true
      }
    } catch {
      problem = error
    }
  }

  private mutating func process(_ found: consuming JournalChunk.Line) throws(JournalProblem) {
    let line = found.line
    try checkPosition(of: line)
    let start = batchStart ?? (line, found.range.lowerBound)
    batchStart = start
    position = found.range.upperBound + 1
    if batch.count < Self.maxBatchInMemory {
      batch.append(NumberedLine(line: found, number: lineNumber))
      batchInMemoryEnd = position
    }
    batchCount += 1
    lineNumber += 1
    if !line.isContinued { try acceptBatch(startingAt: start.offset, firstLine: start.line) }
  }

  /// Throws an error if a good line is in an impossible position.
  private func checkPosition(of line: JournalLine) throws(JournalProblem) {
    let expected = contents.nextSequence + batchCount
    guard line.sequence == expected else {
      throw damageError("it has the number \(line.sequence) instead of \(expected)")
    }
    guard line.firstUnsynced <= line.sequence else {
      throw damageError("it says that it was stored before it was written")
    }
    if let first = batchStart?.line, first.firstUnsynced != line.firstUnsynced {
      throw damageError("the batch before it has no end")
    }
  }

  private mutating func acceptBatch(
    startingAt start: Int,
    firstLine first: JournalLine
  ) throws(JournalProblem) {
    for index in batch.indices {
      if let line = batch[index].take() { try replayLine(line) }
    }
    try replayLines(from: batchInMemoryEnd, firstNumber: lineNumber - Int(batchCount) + batch.count)
    batch.removeAll(keepingCapacity: true)
    batchStart = nil
    recentBatches.append((first.sequence, start))
    // The batch that was just added always stays, because its `firstUnsynced` is not greater than
    // its sequence number.
    while let oldest = recentBatches.first, oldest.sequence < first.firstUnsynced {
      _ = recentBatches.popFirst()
    }
    contents.unsyncedOffset = recentBatches.first?.offset ?? start
    contents.nextSequence += batchCount
    contents.goodSize = position
    batchCount = 0
  }

  /// Reads the lines from an offset up to the current position again, and replays them.
  private mutating func replayLines(
    from offset: Int,
    firstNumber: Int
  ) throws(JournalProblem) {
    var (start, number) = (offset, firstNumber)
    while start < position {
      let end = min(position, start + Self.partSize)
      var part = JournalChunk(of: source, linesBeginningIn: start..<end)
      if let failure = part.failure { throw .unreadable(failure) }
      while let line = part.popFirstLine() {
        try replayLine(NumberedLine(line: line, number: number))
        number += 1
      }
      start = end
    }
    guard number == lineNumber else { throw damageError("it has changed since it was read") }
  }

  // MARK: Damage

  private func damageError(_ reason: String) -> JournalProblem {
    .damaged(line: lineNumber, byte: position, reason: reason)
  }

  /// Throws an error if a later line shows that the bad line at the current position, or its batch,
  /// was durable.
  private mutating func throwIfDamaged() throws(JournalProblem) {
    let hasHeader = contents.nextSequence > 0 || batchCount > 0
    var lineCount = 0
    try forEachRemainingLine { line throws(JournalProblem) in
      guard hasHeader, line.firstUnsynced <= contents.nextSequence else {
        throw damageError("its checksum is wrong, and later lines show that it was stored")
      }
      lineCount += 1
    }
    contents.tornLineCount = lineCount
    guard hasHeader else {
      let start = try read(0..<min(source.count, JournalLine.maxEnvelopeLength * 4))
      if let end = start.lineFeed(from: 0), JournalLine(beforeReturnIn: start, 0..<end) != nil {
        throw damageError(JournalLine.carriageReturnProblem)
      }
      throw .notAJournal
    }
    let end = try read(max(position, source.count - JournalLine.maxSealLength)..<source.count)
    if let seal = JournalLine(sealAtEndOf: end), seal.firstUnsynced > contents.nextSequence {
      throw damageError("the line feed after it is missing, and a seal shows that it was stored")
    }
  }

  /// Calls `body` with each good line after the current position.
  ///
  /// The file is read in pieces, because the rest may be long, even if it contains few good lines.
  private func forEachRemainingLine(
    _ body: (JournalLine) throws(JournalProblem) -> Void
  ) throws(JournalProblem) {
    // The bytes after the last line feed, unless they are already too long for a line.
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

  private mutating func replayLine(_ numbered: NumberedLine) throws(JournalProblem) {
    let (line, range) = (numbered.line.line, numbered.line.range)
    func damageError(_ reason: String) -> JournalProblem {
      .damaged(line: numbered.number, byte: range.lowerBound, reason: reason)
    }
    let entry: JournalEntry
    do throws(JournalDecodingError) {
      entry = try numbered.line.entry.get()
    } catch {
      switch error {
      case .unknownKind(let kind): throw .unknownKind(kind, line: numbered.number)
      case .malformed(let reason): throw damageError(reason)
      }
    }
    if case .seal = entry { contents.isSealed = true } else { contents.isSealed = false }
    switch entry {
    case .header(let version, let generation):
      guard line.sequence == 0 else { throw damageError("it is a second header") }
      guard version <= JournalEntry.formatVersion else { throw .newerVersion(version) }
      contents.version = version
      contents.generation = generation
    case .task, .compacted, .change, .addition, .supersession, .restart, .value, .memory, .begin,
      .interruption, .seal:
      guard line.sequence > 0 else { throw .notAJournal }
      if case .task = entry, isPastTasks { throw damageError("it is a task after changes") }
      isPastTasks = isPastTasks || !entry.isInSnapshot
      let byteCount = line.body.count + JournalLine.maxEnvelopeLength
      guard contents.table.replay(entry, byteCount: byteCount) else {
        throw damageError("it contradicts the lines before it")
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
  /// The size of a part, in bytes; a file of at most this size is read by one thread.
  static var partSize: Int { 64 << 10 }
  /// The number of parts to read at a time, while the previous parts are processed.
  ///
  /// This limits how much of a file is in memory.
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

  /// Reads a file without interrupting tasks: those with an attempt that has not ended stay
  /// running.
  static func readAsWritten(
    _ source: JournalSource,
    partSize: Int = partSize
  ) throws(JournalProblem) -> JournalContents {
    let reader = Mutex(JournalReader(source))
    var start = 0
    repeat {
      let end = min(source.count, start + partsAtOnce * partSize)
      let ranges = stride(from: start, to: end, by: partSize).map { $0..<min(end, $0 + partSize) }
      let parts = JournalChunk.read(ranges, of: source) { reader.withLock { $0.processParts() } }
      reader.withLock { $0.add(parts) }
      start = end
    } while !reader.withLock(\.isDone)
    return try reader.withLock { reader throws(JournalProblem) in try reader.finish() }
  }
}

extension JournalChunk {
  /// Calls `body` once and, at the same time, reads parts of a file.
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
    // This can't deadlock: if no other thread is available, this thread does all the work.
    DispatchQueue.concurrentPerform(iterations: 1 + ranges.count) { index in
      guard index > 0 else { return body() }
      let part = JournalChunk(of: source, linesBeginningIn: ranges[index - 1])
      parts.withLock { $0[index - 1] = part }
    }
    return parts.withLock { $0.compactMap(\.self) }
  }
}

/// The bytes of a file, which are in memory or are read on demand.
///
/// Any thread may read. No other thread may write to the file at the same time.
struct JournalSource: Sendable {
  /// The number of bytes.
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

  /// Reads a file of at most `sizeInMemory` bytes into memory.
  ///
  /// A larger file is read on demand.
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

  /// The maximum size of the reserved space at the end of a file, in bytes.
  static var maxReservation: Int { 64 << 20 }

  /// Returns the bytes without the zeros at the end of the file, which reserve space for lines.
  ///
  /// If there are more zeros than a store can have reserved, they are not removed.
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

  func readAll() throws(JournalProblem) -> [UInt8] {
    do { return try read(0..<count) } catch { throw .unreadable(error) }
  }

  /// Returns the bytes in a range; fewer if the file has become shorter.
  func read(_ range: Range<Int>) throws(SystemCallError) -> [UInt8] { try bytes(range) }
}

/// The good lines that start in one part of a file, and their decoded entries.
///
/// Several threads can read different parts at the same time. Whether the lines are in valid
/// positions is not checked here, but by the ``JournalReader``, which processes the parts in order.
struct JournalChunk: Sendable {
  struct Line: Sendable {
    /// The line, in which all ranges are offsets in the file.
    let line: JournalLine
    let range: Range<Int>
    let entry: Result<JournalEntry, JournalDecodingError>
  }

  /// The number of bytes to read after the end of the part, which usually suffices for the last
  /// line.
  private static let usualOverhang = 4 << 10

  /// The usual length of a line, in bytes.
  private static let usualLineLength = 200

  private var lines = FIFOQueue<Line>()
  /// Whether the line after `lines` is invalid or incomplete.
  private(set) var endsAtBadLine = false
  /// The error of reading the part; `nil` if there was none.
  private(set) var failure: SystemCallError?

  init(of source: JournalSource, linesBeginningIn range: Range<Int>) {
    do throws(SystemCallError) {
      // If the byte before the part is a line feed, a line starts at the start of the part.
      let start = max(0, range.lowerBound - 1)
      let end = min(source.count, range.upperBound + Self.usualOverhang)
      var bytes = try source.read(start..<end)
      guard let first = Self.startOfFirstLine(in: bytes, isFileStart: range.lowerBound == 0),
        start + first < range.upperBound
      else { return }
      try Self.readToLineEnd(source, from: start, linesBeginningIn: range, &bytes)
      readLines(in: bytes, at: start, from: first, before: range.upperBound - start)
    } catch {
      failure = error
    }
  }

  mutating func popFirstLine() -> Line? { lines.popFirst() }

  /// Reads more bytes, until they contain the end of the last line, or the line is too long.
  ///
  /// Call this only if a line starts in the part. Otherwise, each part in the middle of a very long
  /// line would read the rest of that line.
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

  /// Returns the index of the first line that starts in the part; `nil` if there is none.
  private static func startOfFirstLine(in bytes: [UInt8], isFileStart: Bool) -> Int? {
    isFileStart ? 0 : bytes.lineFeed(from: 0).map { $0 + 1 }
  }

  private mutating func readLines(
    in bytes: [UInt8],
    at start: Int,
    from first: Int,
    before end: Int
  ) {
    var decoder = JournalDecoder(bytes)
    lines = FIFOQueue(minimumCapacity: bytes.count / Self.usualLineLength)
    var position = first
    while position < min(end, bytes.count) {
      guard let end = bytes.lineFeed(from: position), let line = JournalLine(bytes, position..<end)
      else {
        endsAtBadLine = true
        return
      }
      lines.append(
        Line(
          line: line.moved(by: start),
          range: start + position..<start + end,
          entry: decoder.entryResult(of: line)
        )
      )
      position = end + 1
    }
  }
}

extension JournalDecoder {
  fileprivate mutating func entryResult(
    of line: JournalLine
  ) -> Result<JournalEntry, JournalDecodingError> {
    do throws(JournalDecodingError) {
      return .success(try readEntry(of: line))
    } catch {
      return .failure(error)
    }
  }
}

/// The contents of a file, as a ``JournalReader`` found them.
struct JournalContents: Sendable {
  var table = TaskTable()
  var version = 0
  var generation = 0
  var lastCompaction: JSONFileStatistics.Compaction?
  /// The number of tasks with an attempt that has started but not ended.
  var interruptionCount = 0
  /// Whether the last good line is a seal, which records that the file was closed.
  var isSealed = false
  /// The sequence number of the next line to write.
  var nextSequence: UInt64 = 0
  /// The offset of the end of the last complete batch; the rest of the file is a torn end.
  var goodSize = 0
  /// The number of good lines in the torn end.
  var tornLineCount = 0
  /// The offset of the first batch that, according to the last good line, may not be durable.
  var unsyncedOffset = 0
}

/// The reason that a file can't be opened.
enum JournalProblem: Error, Equatable {
  /// The first line is not a header of this format.
  case notAJournal
  case newerVersion(Int)
  case unknownKind(String, line: Int)
  /// A line that was durable is bad, or a good line contradicts earlier lines.
  case damaged(line: Int, byte: Int, reason: String)
  /// Reading the file has failed.
  case unreadable(SystemCallError)
}
