import Synchronization
import SystemFoundation

/// The file as a sequence of lines: opens it, appends to it, and makes it durable.
///
/// One thread at a time uses a journal, except that another thread may perform a flush. After a
/// failure that leaves the disk's contents unknown, the journal accepts no further calls.
struct Journal {
  /// The kind of a failure, and whether anything may have been stored.
  enum Failure: Error, Equatable {
    /// Nothing was stored.
    case refused(SystemCallError)
    /// The stored contents are unknown, now and from now on.
    case poisoned(SystemCallError)
    /// Nothing was stored: the file was deleted, moved or replaced by another program.
    case displaced
    /// Nothing was stored: another program wrote to the file, whose size is not the expected one.
    case changed(size: Int, expected: Int)
  }

  /// Everything is durable except the last line, which records that the file was closed.
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
  /// The sequence number of the next line, which is also the number of lines.
  private(set) var nextSequence: UInt64
  /// The size of the lines in the file, in bytes.
  private(set) var size: Int
  /// The size of the file in bytes, including the zeros that reserve space for lines.
  private(set) var fileSize: Int
  /// The number of bytes to reserve when the reserved space is used up; 0 for none.
  var reservation = 0
  private(set) var lastCompaction: JSONFileStatistics.Compaction?
  private let file: SyncedFile
  private var firstUnsynced: UInt64
  /// Whether a seal is the last line.
  private var isSealed: Bool
  /// Whether the next line to write must record that tasks were interrupted.
  ///
  /// Later lines depend on that line. Until the line is written, the file implies the same: it
  /// contains starts of attempts without their ends.
  private(set) var hasPendingInterruption: Bool

  /// Creates a journal for a file that durably contains these contents.
  ///
  /// `fileSize` is the size of the file, if it contains more than these contents.
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

  /// The maximum number of bytes to write in addition to the next lines.
  var pendingInterruptionByteCount: Int {
    hasPendingInterruption ? JournalBody.interruption.byteCount : 0
  }

  /// All bytes that were written, read from the file.
  var source: JournalSource { source(ofFirst: size) }

  /// The first `count` bytes of the file.
  func source(ofFirst count: Int) -> JournalSource {
    JournalSource(count: count) { [file] range throws(SystemCallError) in
      try file.read(range.count, at: range.lowerBound)
    }
  }

  /// Appends batches of lines: all of them or, if it throws `refused`, none.
  ///
  /// After a crash, the file contains all lines of a batch, or none. If `reserves` is `true`, the
  /// call reserves space for later lines when none is left.
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

  /// Appends zeros to the file, which later lines replace.
  ///
  /// The next flush makes the zeros durable. Afterwards, a flush need not make a new size or new
  /// disk blocks durable. If the zeros can't be written, the file continues without them.
  private mutating func reserveSpace() throws(Failure) {
    do {
      try file.write([UInt8](repeating: 0, count: reservation), at: size)
      fileSize = size + reservation
    } catch {
      // The disk is full. Trying again with each write would fill it each time.
      reservation = 0
      try removeReservation()
    }
  }

  private mutating func removeReservation() throws(Failure) {
    try file.truncate(to: size)
    fileSize = size
  }

  /// Durably removes the bytes that a failed write has left, so that a power cut can't restore
  /// them.
  private mutating func undoWrite(because error: SystemCallError) throws(Failure) {
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

  /// Records that a flush was performed.
  ///
  /// If another file has replaced the flushed one, the new file's contents were already durable.
  mutating func endFlush(_ flush: Flush) {
    if flush.file === file { firstUnsynced = max(firstUnsynced, flush.end) }
  }

  /// Returns the present size of the file, in bytes.
  func sizeInFile() throws(SystemCallError) -> Int { try file.size() }

  /// Reads bytes from the file that were written before.
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

  /// Makes everything durable, writes a last line that records the closing, and closes the file.
  ///
  /// If the file ended with such a line when it was opened, and nothing was written since then, no
  /// other one is written.
  ///
  /// - Throws: A ``Failure``, or an ``Unsealed`` if everything except that line is durable.
  mutating func close() throws {
    defer { file.close() }
    if isSealed { return }
    try synchronize()
    do throws(Failure) {
      if hasPendingInterruption {
        // The seal implies that every line before it is stored.
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
  mutating func closeWithoutSeal() throws(Failure) {
    defer { file.close() }
    try synchronize()
  }

  /// Closes the file without a flush.
  func abandon() { file.close() }
}

extension JournalStorage {
  /// Refuses a journal that was moved or deleted, or that another program has changed.
  func checkLocation(of journal: Journal) throws(Journal.Failure) {
    let place: JournalLocation
    do { place = try self.location(of: .journal) } catch { throw .refused(error) }
    guard case .atItsPath(let size) = place else { throw .displaced }
    guard let size, size != journal.fileSize else { return }
    throw .changed(size: size, expected: journal.fileSize)
  }
}

extension Journal {
  /// The number of bytes to rewrite at a time.
  ///
  /// Without flushes, there may be many bytes to rewrite.
  private static let partSize = 1 << 20

  /// Opens the file, or creates it, and returns the tasks in it.
  ///
  /// If the process crashes during a step, the step can be repeated. Nothing is changed until
  /// everything that was read is accepted. `date` is called only if a compaction is needed.
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

  /// Makes the accepted contents of a file durable, and removes the rest.
  private static func recover(
    _ file: any JournalFile,
    from source: JournalSource,
    keeping contents: JournalContents,
    in storage: any JournalStorage
  ) throws -> Journal {
    if contents.goodSize < source.count { try file.truncate(to: contents.goodSize) }
    // After a failed flush, the system may treat the last lines as stored although they are not.
    // Rewriting the lines makes the next flush store them.
    for start in stride(from: contents.unsyncedOffset, to: contents.goodSize, by: partSize) {
      let part = try source.read(start..<min(start + partSize, contents.goodSize))
      try file.writeAll(part[...], at: start)
    }
    try file.synchronize()
    try storage.synchronizeFolder()
    return Journal(file, contents)
  }

  /// Compacts a file that has other names into a new file, and leaves the old one unchanged.
  ///
  /// Another name, made by a backup for instance, is meant to preserve the present contents.
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

  /// Creates a file with a header, which may replace the journal once it is durable.
  ///
  /// `journal` contains the bytes of the present journal, if there is one.
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
  /// Returns the contents of a journal whose lines have a total size of `size` bytes, with no lines
  /// copied.
  fileprivate func withSize(_ size: Int) -> JournalContents {
    var contents = self
    contents.goodSize = size
    return contents
  }
}

/// A journal's file, which one thread may write while another flushes it.
///
/// Flushes are performed one after another: if two ran at the same time, the system would report
/// lost bytes to only one of them. After a failed flush, the file accepts no further calls: the
/// system may have dropped bytes that it could not write, and would report success the next time.
///
/// A file is also closed without a failure, when another file has replaced it. Everything that was
/// written is durable in the new file, so a late flush of the old one does nothing.
final class SyncedFile: Sendable {
  private let file: any JournalFile
  /// Serializes flushes, and records whether the file was closed.
  private let isClosed = Mutex(false)
  private let poison = AtomicLazyReference<Poison>()

  /// The first error after which the file accepts no further calls.
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
  /// If that fails, the file accepts no further calls.
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

  /// Closes the file after the present flush has ended.
  ///
  /// A flush that starts during the call does not wait, because the system takes long to close a
  /// large file that no longer has a name.
  func close() {
    isClosed.withLock { $0 = true }
    file.close()
  }
}
