import Synchronization
import SystemFoundation

/// A file of lines: opens the file, appends lines, and makes them durable.
///
/// Only one thread at a time may use a journal, but another one may perform a flush. After a
/// failure that leaves the contents of the disk unknown, calls throw.
struct Journal {
  /// The reason that lines were not stored, or may not have been stored.
  enum Failure: Error, Equatable {
    /// Nothing was stored.
    case refused(SystemCallError)
    /// It is unknown what is stored. The journal accepts no further calls.
    case poisoned(SystemCallError)
    /// Nothing was stored: the file was deleted, moved or replaced by another program.
    case displaced
    /// Nothing was stored: another program has changed the size of the file.
    case changed(size: Int, expected: Int)
  }

  /// The error of a closing that has made everything durable, but could not write the seal.
  struct Unsealed: Error {
    let reason: Failure
  }

  /// A flush of the lines that were written so far, which any thread may perform.
  struct Flush: Sendable {
    fileprivate let file: SyncedFile
    /// The sequence number of the first line that the flush does not cover.
    fileprivate let end: UInt64

    @discardableResult
    func perform() throws(Failure) -> Flush {
      try file.synchronize()
      return self
    }
  }

  let generation: Int
  /// The sequence number of the next line, which is also the number of lines.
  private(set) var nextSequence: UInt64
  /// The total size of the lines, in bytes.
  private(set) var size: Int
  /// The size of the file in bytes, including the zeros that reserve space for lines.
  private(set) var fileSize: Int
  /// The number of bytes to reserve each time that the reserved space is used up; 0 for none.
  var reservation = 0
  private(set) var lastCompaction: JSONFileStatistics.Compaction?
  private let file: SyncedFile
  private var firstUnsynced: UInt64
  /// Whether the last line is a seal, which records that the file was closed.
  private var isSealed: Bool
  /// Whether a line that records the interruption of tasks must be written before the next line.
  ///
  /// Later lines depend on that line. Until the line is written, opening the file again has the
  /// same result, because the file contains starts of attempts without ends.
  private(set) var hasPendingInterruption: Bool

  /// Makes a journal for a file that durably contains `contents`.
  ///
  /// `fileSize` is the size of the file, if the file contains more bytes.
  init(_ file: any JournalFile, _ contents: JournalContents, fileSize: Int? = nil) {
    self.file = SyncedFile(file)
    generation = contents.generation
    nextSequence = contents.nextSequence
    firstUnsynced = contents.nextSequence
    size = contents.goodSize
    self.fileSize = fileSize ?? contents.goodSize
    lastCompaction = contents.lastCompaction
    isSealed = contents.isSealed
    hasPendingInterruption = contents.interruptionCount > 0
  }

  /// The maximum size of the line that must be written before the next line; 0 if there is none.
  var pendingInterruptionByteCount: Int {
    hasPendingInterruption ? JournalBody.interruption.byteCount : 0
  }

  /// The bytes of all lines, which are read from the file on demand.
  var source: JournalSource { source(ofFirst: size) }

  /// The first `count` bytes of the file, which are read on demand.
  func source(ofFirst count: Int) -> JournalSource {
    JournalSource(count: count) { [file] range throws(SystemCallError) in
      try file.read(range.count, at: range.lowerBound)
    }
  }

  /// Appends batches of lines; if the call throws `refused`, no line was appended.
  ///
  /// After a crash, the file contains either all lines of a batch or none. If `reserves` is `true`
  /// and no reserved space is left, the call reserves space for later lines.
  mutating func append(_ batches: [[JournalBody]], reserves: Bool = false) throws(Failure) {
    try file.checkPoison()
    let batches = hasPendingInterruption ? [[.interruption]] + batches : batches
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
      try undoWrite(because: error)
    }
    nextSequence = sequence
    size += bytes.count
    hasPendingInterruption = false
    isSealed = false
    guard size > fileSize else { return }
    fileSize = size
    if reserves, reservation > 0 { try reserveSpace() }
  }

  /// Reserves space for later lines, by appending zeros to the file.
  ///
  /// After the next flush, the zeros and the file's new size are durable. Flushes of lines that
  /// replace the zeros are then faster, because the size does not change. If the zeros can't be
  /// written, no space is reserved.
  private mutating func reserveSpace() throws(Failure) {
    do {
      try file.write([UInt8](repeating: 0, count: reservation), at: size)
      fileSize = size + reservation
    } catch {
      // The disk is probably full. Trying again with each write would fill it each time.
      reservation = 0
      try removeReservation()
    }
  }

  private mutating func removeReservation() throws(Failure) {
    try file.truncate(to: size)
    fileSize = size
  }

  /// Removes the bytes that a failed write has left, and flushes the file, so that a power cut
  /// can't restore them.
  private mutating func undoWrite(because error: SystemCallError) throws(Failure) {
    try removeReservation()
    try synchronize()
    throw .refused(error)
  }

  /// Makes all lines durable.
  mutating func synchronize() throws(Failure) { endFlush(try beginFlush().perform()) }

  /// Returns a flush of all lines that were written so far.
  ///
  /// Other lines may be written while the flush is performed.
  func beginFlush() -> Flush { Flush(file: file, end: nextSequence) }

  /// Records that a flush was performed.
  ///
  /// If a compaction has replaced the file during the flush, this has no effect, because the
  /// contents of the new file are already durable.
  mutating func endFlush(_ flush: Flush) {
    if flush.file === file { firstUnsynced = max(firstUnsynced, flush.end) }
  }

  /// Returns the size of the file on the disk, which another program may have changed.
  func sizeInFile() throws(SystemCallError) -> Int { try file.size() }

  func read(_ count: Int, at offset: Int) throws(SystemCallError) -> [UInt8] {
    try file.read(count, at: offset)
  }

  mutating func recordCompaction(at date: Date, bytesBefore: Int) {
    lastCompaction = JSONFileStatistics.Compaction(
      date: date,
      bytesBefore: bytesBefore,
      bytesAfter: size
    )
  }

  /// Makes everything durable, writes a seal, and closes the file.
  ///
  /// A seal is a line that records the closing. If the last line is already a seal, nothing is
  /// written.
  ///
  /// - Throws: A ``Failure``, or an ``Unsealed`` if everything except the seal is durable.
  mutating func close() throws {
    defer { file.close() }
    if isSealed { return }
    try synchronize()
    do throws(Failure) {
      if hasPendingInterruption {
        // A seal says that every earlier line is durable, so the line for the interruption is
        // flushed first.
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

  /// Makes everything durable, and closes the file without writing a seal.
  mutating func closeWithoutSeal() throws(Failure) {
    defer { file.close() }
    try synchronize()
  }

  /// Closes the file without a flush.
  func abandon() { file.close() }
}

extension JournalStorage {
  /// Throws an error if another program has moved, deleted or replaced the journal, or has changed
  /// its size.
  func checkLocation(of journal: Journal) throws(Journal.Failure) {
    let location: JournalLocation
    do { location = try self.location(of: .journal) } catch { throw .refused(error) }
    guard case .atItsPath(let size) = location else { throw .displaced }
    guard let size, size != journal.fileSize else { return }
    throw .changed(size: size, expected: journal.fileSize)
  }
}

extension Journal {
  /// The number of bytes to rewrite at a time when a file is opened.
  ///
  /// If the store seldom flushes, there may be many bytes to rewrite.
  private static let partSize = 1 << 20

  /// Opens the journal, or creates it, and reads its tasks.
  ///
  /// A crash at any moment does no harm: the journal can be opened again. No file is changed before
  /// the whole journal was read without an error. `date` is called only if the journal must be
  /// compacted.
  static func open(
    _ storage: any JournalStorage,
    at date: () -> Date = { Date() }
  ) throws -> (journal: Journal, table: TaskTable) {
    guard let file = try storage.open(.journal) else {
      return (try create(in: storage), TaskTable())
    }
    do {
      let whole = try JournalSource(file)
      if whole.count == 0 {
        file.close()
        return (try create(in: storage), TaskTable())
      }
      let source = try whole.withoutReservation()
      let contents = try JournalReader.read(source)
      try StaleTempFile.makeNameAvailable(in: storage, beside: source, copyStart: contents.goodSize)
      if contents.tornLineCount > 0 {
        let end = contents.goodSize..<source.count
        _ = try BackupCopy.makeCopy(
          of: source,
          range: end,
          named: JournalFileName.torn,
          in: storage
        )
      }
      if file.hasOtherNames {
        let journal = Journal(file, contents.withSize(source.count), fileSize: whole.count)
        let table = contents.table
        return (try compactIntoNewFile(journal, holding: table, in: storage, at: date()), table)
      }
      try file.protect()
      return (try recover(file, from: whole, keeping: contents, in: storage), contents.table)
    } catch {
      file.close()
      throw error
    }
  }

  /// Makes the contents of a file durable, and removes incomplete lines at its end.
  private static func recover(
    _ file: any JournalFile,
    from source: JournalSource,
    keeping contents: JournalContents,
    in storage: any JournalStorage
  ) throws -> Journal {
    if contents.goodSize < source.count { try file.truncate(to: contents.goodSize) }
    // If an earlier flush has failed, the system may treat the last lines as stored although they
    // are not. Rewriting these lines makes the next flush store them.
    for start in stride(from: contents.unsyncedOffset, to: contents.goodSize, by: partSize) {
      let part = try source.read(start..<min(start + partSize, contents.goodSize))
      try file.writeAll(part[...], at: start)
    }
    try file.synchronize()
    try storage.synchronizeFolder()
    return Journal(file, contents)
  }

  /// Compacts a file that has other names (hard links) into a new file, and leaves the old file
  /// unchanged.
  ///
  /// Another name, for example one that a backup made, is meant to preserve the current contents.
  private static func compactIntoNewFile(
    _ journal: Journal,
    holding table: TaskTable,
    in storage: any JournalStorage,
    at date: Date
  ) throws -> Journal {
    do throws(Compaction.Failure) {
      var compaction = try Compaction(
        of: journal,
        snapshot: table.snapshot,
        in: storage
      )
      let replacement = try compaction.finish(journal, at: date)
      journal.abandon()
      return replacement
    } catch {
      throw error.cause
    }
  }

  private static func create(in storage: any JournalStorage) throws -> Journal {
    var journal = try makeReplacement(in: storage, generation: 1, beside: nil)
    do {
      try journal.synchronize()
      try storage.openFolder()
      try storage.rename(.replacement, to: .journal)
    } catch {
      journal.abandon()
      // If the file can't be removed now, the next opening removes it.
      try? storage.removeUnlessReplaced(.replacement)
      throw error
    }
    do {
      try storage.synchronizeFolder()
    } catch {
      journal.abandon()
      throw error
    }
    return journal
  }

  /// Creates a temporary file with a header, to replace the journal later.
  ///
  /// `journal` is the bytes of the current journal, if there is one.
  static func makeReplacement(
    in storage: any JournalStorage,
    generation: Int,
    beside journal: JournalSource?
  ) throws -> Journal {
    try StaleTempFile.makeNameAvailable(in: storage, beside: journal)
    var journal = Journal(
      try storage.create(.replacement),
      JournalContents(generation: generation)
    )
    do {
      try journal.append([
        [JournalBody(.header(version: JournalEntry.formatVersion, generation: generation))]
      ])
    } catch {
      journal.abandon()
      // If the file can't be removed now, the next opening removes it.
      try? storage.removeUnlessReplaced(.replacement)
      throw error
    }
    return journal
  }
}

extension JournalContents {
  /// Returns a copy in which the lines have a total size of `size` bytes.
  fileprivate func withSize(_ size: Int) -> JournalContents {
    var contents = self
    contents.goodSize = size
    return contents
  }
}

/// A journal's file, to which one thread may write while another thread flushes it.
///
/// Flushes are performed one after another: if two ran at the same time, the system would report
/// lost bytes to only one of them. After a failed flush, further flushes and ``checkPoison()``
/// throw: the system may have dropped bytes that it could not write, and the next flush would then
/// report success.
///
/// After the file was closed, a flush does nothing. This happens when a compaction has replaced the
/// file: everything that was written is then durable in the new file.
final class SyncedFile: Sendable {
  private let file: any JournalFile
  /// Whether the file was closed.
  ///
  /// The mutex is locked during a flush, so that only one flush runs at a time.
  private let isClosed = Mutex(false)
  private let poison = AtomicLazyReference<Poison>()

  /// The first error that left the contents of the disk unknown.
  private final class Poison: Sendable {
    let error: SystemCallError

    init(_ error: SystemCallError) { self.error = error }
  }

  init(_ file: any JournalFile) { self.file = file }

  func checkPoison() throws(Journal.Failure) {
    if let poison = poison.load() { throw .poisoned(poison.error) }
  }

  /// Makes everything durable that was written before the call.
  func synchronize() throws(Journal.Failure) {
    try isClosed.withLock { isClosed throws(Journal.Failure) in
      try checkPoison()
      guard !isClosed else { return }
      try poisonOnFailure { () throws(SystemCallError) in try file.synchronize() }
    }
  }

  func size() throws(SystemCallError) -> Int { try file.size() }

  func write(_ bytes: [UInt8], at offset: Int) throws(SystemCallError) {
    try file.writeAll(bytes[...], at: offset)
  }

  /// Shortens the file.
  ///
  /// If this fails, the contents of the disk are unknown: flushes and ``checkPoison()`` throw from
  /// then on.
  func truncate(to size: Int) throws(Journal.Failure) {
    try poisonOnFailure { () throws(SystemCallError) in try file.truncate(to: size) }
  }

  private func poisonOnFailure(_ body: () throws(SystemCallError) -> Void) throws(Journal.Failure) {
    do {
      try body()
    } catch {
      _ = poison.storeIfNil(Poison(error))
      throw .poisoned(error)
    }
  }

  func read(_ count: Int, at offset: Int) throws(SystemCallError) -> [UInt8] {
    try file.read(count, at: offset)
  }

  /// Closes the file after the current flush has ended.
  ///
  /// `isClosed` is not locked while the system closes the file. So a flush that starts in the
  /// meantime does not wait: closing a large file that has no name anymore takes long.
  func close() {
    isClosed.withLock { $0 = true }
    file.close()
  }
}
