#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// The file as a sequence of lines: opens it, appends to it, makes it durable.
///
/// Used by one thread at a time, except that another one may perform a flush. After a failure that
/// leaves open what is on the disk it takes no further calls.
struct Journal {
  /// What went wrong, and whether anything may be stored of it.
  enum Failure: Error, Equatable {
    /// Nothing was stored.
    case refused(SystemCallError)
    /// It is open what was stored; now and from now on.
    case poisoned(SystemCallError)
    /// Nothing was stored: the file was deleted, moved or replaced by somebody else.
    case displaced
    /// Nothing was stored: somebody else has written the file, which has this size and not the one
    /// that is expected.
    case changed(size: Int, expected: Int)
  }

  /// All is durable, but the last line, which says that the file was closed.
  struct Unsealed: Error {
    let reason: Failure
  }

  /// A flush, which any thread may perform.
  struct Flush: Sendable {
    fileprivate let file: FlushedFile
    /// What comes before this sequence number is durable after it.
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
  /// In bytes.
  private(set) var size: Int
  private(set) var lastCompaction: JSONFileStatistics.Compaction?
  private let file: FlushedFile
  private var firstUnsynced: UInt64
  /// Whether a seal is the last line.
  private var isSealed: Bool
  /// Whether the first line to be written says that tasks were interrupted: what follows rests on it,
  /// and until then the file says it without, as those tasks have begun in it and not ended.
  private(set) var owesInterruption: Bool

  /// A journal in a file that holds this, durably.
  init(_ file: any JournalFile, _ contents: JournalContents) {
    self.file = FlushedFile(file)
    generation = contents.generation
    nextSequence = contents.nextSequence
    firstUnsynced = contents.nextSequence
    size = contents.goodSize
    lastCompaction = contents.lastCompaction
    isSealed = contents.isSealed
    owesInterruption = contents.interruptionCount > 0
  }

  /// How many bytes come with the next lines, at most.
  var owedByteCount: Int { owesInterruption ? JournalBody.interruption.byteCount : 0 }

  /// What was written, as it stands in the file.
  var source: JournalSource { source(size) }

  /// So many bytes of the file.
  func source(_ count: Int) -> JournalSource {
    JournalSource(count: count) { [file] range throws(SystemCallError) in
      try file.read(range.count, at: range.lowerBound)
    }
  }

  /// Appends batches of lines: all of them or, if it throws `refused`, none.
  ///
  /// After a crash each batch is there as a whole or not at all.
  mutating func append(_ batches: [[JournalBody]]) throws(Failure) {
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
  }

  /// Removes what a failed write has left, for good: a power cut must not bring it back.
  private mutating func takeBack(_ error: SystemCallError) throws(Failure) {
    try file.truncate(to: size)
    try synchronize()
    throw .refused(error)
  }

  /// Makes all lines durable.
  mutating func synchronize() throws(Failure) { endFlush(try beginFlush().perform()) }

  /// A flush of all lines that are there now; others may be written while it is performed.
  func beginFlush() -> Flush { Flush(file: file, end: nextSequence) }

  /// The flush was performed.
  ///
  /// If another file has taken the place of the one that was flushed, all in it was durable before.
  mutating func endFlush(_ flush: Flush) {
    if flush.file === file { firstUnsynced = max(firstUnsynced, flush.end) }
  }

  /// How many bytes stand in the file now.
  func sizeInFile() throws(SystemCallError) -> Int { try file.size() }

  /// What was written before, as it stands in the file.
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

  /// Ends the use of the file: what is there is made durable, and a last line says so, unless it
  /// stands there since the file was opened.
  ///
  /// - Throws: a ``Failure``; an ``Unsealed``, when all but that line is durable.
  mutating func close() throws {
    defer { file.close() }
    if isSealed { return }
    try synchronize()
    do throws(Failure) {
      try append([[.seal]])
      try synchronize()
    } catch {
      throw Unsealed(reason: error)
    }
  }

  /// Gives the file up as it is.
  func abandon() { file.close() }
}

extension JournalStorage {
  /// Refuses a journal that nobody would find again, or that somebody else has written.
  func checkPlace(of journal: Journal) throws(Journal.Failure) {
    let place: JournalPlace
    do { place = try self.place(of: .journal) } catch { throw .refused(error) }
    guard case .there(let size) = place else { throw .displaced }
    guard let size, size != journal.size else { return }
    throw .changed(size: size, expected: journal.size)
  }
}
