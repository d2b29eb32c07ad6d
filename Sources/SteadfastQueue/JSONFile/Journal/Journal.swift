#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// The file as a sequence of lines: opens it, appends to it, makes it durable.
///
/// One thread uses it at a time, except that another one may perform a flush. After a failure that
/// leaves unknown what is on the disk, it accepts no further calls.
struct Journal {
  /// What went wrong, and whether anything may have been stored.
  enum Failure: Error, Equatable {
    /// Nothing was stored.
    case refused(SystemCallError)
    /// It is unknown what was stored, now and from now on.
    case poisoned(SystemCallError)
    /// Nothing was stored: the file was deleted, moved or replaced by another program.
    case displaced
    /// Nothing was stored: another program wrote to the file, whose size is not the expected one.
    case changed(size: Int, expected: Int)
  }

  /// Everything is durable except the last line, which says that the file was closed.
  struct Unsealed: Error {
    let reason: Failure
  }

  /// A flush, which any thread may perform.
  struct Flush: Sendable {
    fileprivate let file: SyncedFile
    /// After the flush, all lines before this sequence number are durable.
    fileprivate let end: UInt64

    @discardableResult
    func perform() throws(Failure) -> Flush {
      try file.synchronize()
      return self
    }
  }

  let generation: Int
  /// The sequence number of the next line, and so the number of lines.
  private(set) var nextSequence: UInt64
  /// The size of the lines in the file, in bytes.
  private(set) var size: Int
  /// The size of the file in bytes, with the zeros that reserve space for lines.
  private(set) var fileSize: Int
  /// How many bytes to reserve when the reserved space is used up; 0 for none.
  var reservation = 0
  private(set) var lastCompaction: JSONFileStatistics.Compaction?
  private let file: SyncedFile
  private var firstUnsynced: UInt64
  /// Whether a seal is the last line.
  private var isSealed: Bool
  /// Whether the next line to write is one that says that tasks were interrupted.
  ///
  /// Later lines depend on that line. Until it is written, the file implies the same: the attempts
  /// have a beginning in it, but no end.
  private(set) var owesInterruption: Bool

  /// Creates a journal in a file that durably holds these contents.
  ///
  /// `fileSize` is the size of the file, if more than these contents are in it.
  init(_ file: any JournalFile, _ contents: JournalContents, fileSize: Int? = nil) {
    self.file = SyncedFile(file)
    generation = contents.generation
    nextSequence = contents.nextSequence
    firstUnsynced = contents.nextSequence
    size = contents.goodSize
    self.fileSize = fileSize ?? contents.goodSize
    lastCompaction = contents.lastCompaction
    isSealed = contents.isSealed
    owesInterruption = contents.interruptionCount > 0
  }

  /// How many bytes are written in addition to the next lines, at most.
  var owedByteCount: Int { owesInterruption ? JournalBody.interruption.byteCount : 0 }

  /// Everything that was written, read from the file.
  var source: JournalSource { source(size) }

  /// The first `count` bytes of the file.
  func source(_ count: Int) -> JournalSource {
    JournalSource(count: count) { [file] range throws(SystemCallError) in
      try file.read(range.count, at: range.lowerBound)
    }
  }

  /// Appends batches of lines: all of them or, if it throws `refused`, none.
  ///
  /// After a crash, the file has all lines of a batch, or none. If `reserves`, this reserves space
  /// for later lines when none is left.
  mutating func append(_ batches: [[JournalBody]], reserves: Bool = false) throws(Failure) {
    try file.checkPoison()
    let batches = owesInterruption ? [[.interruption]] + batches : batches
    var bytes: [UInt8] = []
    bytes.reserveCapacity(batches.joined().reduce(0) { $0 + $1.bytes.count + 64 })
    var sequence = nextSequence
    for batch in batches {
      for (index, body) in batch.enumerated() {
        JournalLine.append(
          body,
          sequence: sequence,
          firstUnsynced: firstUnsynced,
          isContinued: index + 1 < batch.count,
          to: &bytes
        )
        sequence += 1
      }
    }
    do {
      try file.write(bytes, at: size)
    } catch {
      try takeBack(error)
    }
    nextSequence = sequence
    size += bytes.count
    owesInterruption = false
    isSealed = false
    guard size > fileSize else { return }
    fileSize = size
    if reserves, reservation > 0 { try reserve() }
  }

  /// Adds zeros to the file, which later lines replace.
  ///
  /// The next flush makes them durable. From then on, a flush need not make a new size durable, nor
  /// which blocks of the disk the file has. If the zeros can't be written, the file goes on without
  /// them.
  private mutating func reserve() throws(Failure) {
    do {
      try file.write([UInt8](repeating: 0, count: reservation), at: size)
      fileSize = size + reservation
    } catch {
      // The disk is full. To try again with each write would make it full each time.
      reservation = 0
      try removeReservation()
    }
  }

  private mutating func removeReservation() throws(Failure) {
    try file.truncate(to: size)
    fileSize = size
  }

  /// Durably removes what a failed write has left, so that a power cut can't bring it back.
  private mutating func takeBack(_ error: SystemCallError) throws(Failure) {
    try removeReservation()
    try synchronize()
    throw .refused(error)
  }

  /// Makes all lines durable.
  mutating func synchronize() throws(Failure) { endFlush(try beginFlush().perform()) }

  /// Returns a flush of all present lines.
  ///
  /// Other lines may be written while it is performed.
  func beginFlush() -> Flush { Flush(file: file, end: nextSequence) }

  /// Takes note that a flush was performed.
  ///
  /// If another file has taken the place of the flushed one, everything in the new file was durable
  /// already.
  mutating func endFlush(_ flush: Flush) {
    if flush.file === file { firstUnsynced = max(firstUnsynced, flush.end) }
  }

  /// Returns the present size of the file, in bytes.
  func sizeInFile() throws(SystemCallError) -> Int { try file.size() }

  /// Reads bytes that were written before from the file.
  func read(_ count: Int, at offset: Int) throws(SystemCallError) -> [UInt8] {
    try file.read(count, at: offset)
  }

  mutating func noteCompaction(at date: Date, bytesBefore: Int) {
    lastCompaction = JSONFileStatistics.Compaction(
      date: date,
      bytesBefore: bytesBefore,
      bytesAfter: size
    )
  }

  /// Makes everything durable, writes a last line that says so, and closes the file.
  ///
  /// If nothing was written since the file was opened, and such a line was the last one then, no
  /// other is written.
  ///
  /// - Throws: A ``Failure``, or an ``Unsealed`` if everything except that line is durable.
  mutating func close() throws {
    defer { file.close() }
    if isSealed { return }
    try synchronize()
    do throws(Failure) {
      if owesInterruption {
        // The seal says that every line before it is stored.
        try append([])
        try synchronize()
      }
      try append([[.seal]])
      if fileSize > size { try removeReservation() }
      try synchronize()
    } catch {
      throw Unsealed(reason: error)
    }
  }

  /// Makes everything durable, and closes the file without a last line.
  mutating func closeAsItIs() throws(Failure) {
    defer { file.close() }
    try synchronize()
  }

  /// Closes the file as it is, without a flush.
  func abandon() { file.close() }
}

extension JournalStorage {
  /// Refuses a journal that is not at its place any more, or that another program has written.
  func checkPlace(of journal: Journal) throws(Journal.Failure) {
    let place: JournalPlace
    do { place = try self.place(of: .journal) } catch { throw .refused(error) }
    guard case .there(let size) = place else { throw .displaced }
    guard let size, size != journal.fileSize else { return }
    throw .changed(size: size, expected: journal.fileSize)
  }
}
