import SystemC
import SystemFoundation

/// Rewrites a file without its obsolete lines, in steps, so that other work can be done between the
/// steps.
///
/// A compaction has three phases. First, it writes the tasks and values of a snapshot that is taken
/// when the compaction starts. Then it copies the lines that were added to the journal since the
/// snapshot. When nothing is left to copy, the new file replaces the journal. The journal is not
/// changed until then, so after a failure only the temporary file must be removed.
struct Compaction {
  /// The progress of a compaction.
  enum Progress {
    case unfinished
    /// The new journal has replaced the old one.
    case finished(Journal)
  }

  /// The reason that a compaction has failed.
  enum Failure: Error {
    /// The old file is unchanged, and is still the journal.
    case refused(because: any Error)
    /// The new file has the journal's name, but a power cut may restore the old one.
    case poisoned(SystemCallError)

    /// The error that caused the failure.
    var cause: any Error {
      switch self {
      case .refused(let error): error
      case .poisoned(let error): error
      }
    }
  }

  /// The journal's bytes differ from those that were written, or a new line would be too long.
  struct Unreadable: Error {
    let description: String
  }

  private let storage: any JournalStorage
  private let policy: CompactionPolicy
  /// The tasks of the snapshot.
  ///
  /// Pages that were copied are freed in each step, because freeing all pages at the end would take
  /// long.
  private var tasks: Slab<TaskTable.Entry>
  /// The values that the tasks of the snapshot remember.
  private let memories: TaskMemories
  /// The values that are not copied yet, in reverse order.
  private var values: [PackedValue]
  /// The tasks whose attempt has started, but whose line for the start was not in the journal yet
  /// at the snapshot.
  ///
  /// Those lines are copied later, with the other new lines of the journal.
  private let unwritten: Set<TaskID>
  /// The first slot that may contain a task that is not copied yet.
  private var slot = 0
  /// The offset in the journal of the first line that is not copied yet.
  private var copied: Int
  /// The size of the journal at the previous step, in bytes.
  private var seenSize: Int
  private var replacement: Journal
  private var unflushed = 0
  /// How much larger the lines of tasks and values are than estimated.
  private(set) var underestimate = SizeUnderestimate()

  /// Starts a compaction of a journal.
  ///
  /// The committed contents of the snapshot must be exactly those of the journal, except that the
  /// tasks in `claimed` are leased and the journal does not contain the lines for that yet.
  init(
    of journal: Journal,
    snapshot: TaskTable.Snapshot,
    claimed: Set<TaskID> = [],
    in storage: any JournalStorage,
    _ policy: CompactionPolicy = CompactionPolicy()
  ) throws(Failure) {
    self.storage = storage
    self.policy = policy
    tasks = snapshot.tasks
    memories = snapshot.memories
    // Sorted, so that every compaction writes the same values in the same order.
    values = snapshot.values.sorted { $1.nameBytes.lexicographicallyPrecedes($0.nameBytes) }
    unwritten = claimed
    copied = journal.size
    seenSize = journal.size
    // Only another program can have written the maximum number. Adding 1 to it would overflow.
    let generation = journal.generation < .max ? journal.generation + 1 : journal.generation
    do {
      replacement = try Journal.makeReplacement(
        in: storage,
        generation: generation,
        beside: journal.source
      )
    } catch {
      throw .refused(because: error)
    }
  }

  /// Performs one step.
  mutating func advance(_ journal: Journal, at date: Date) throws(Failure) -> Progress {
    do {
      if tasks.firstUsedSlot(from: slot) != nil {
        try copyTasks()
        seenSize = journal.size
        return .unfinished
      }
      if !values.isEmpty {
        try copyValues()
        seenSize = journal.size
        return .unfinished
      }
      try copyLines(of: journal)
      guard copied == journal.size else { return .unfinished }
      try replacement.synchronize()
      try replacement.append([
        [JournalBody(.compacted(at: date, bytesBefore: journal.size))]
      ])
      try replacement.synchronize()
      // Making the new name durable after renaming must not fail for lack of file descriptors.
      try storage.openFolder()
      // This throws if another program has replaced or changed the journal, which must not be
      // overwritten then.
      try storage.checkLocation(of: journal)
      try storage.rename(.replacement, to: .journal)
    } catch {
      abandon()
      throw .refused(because: error)
    }
    do {
      try storage.synchronizeFolder()
    } catch {
      replacement.abandon()
      throw .poisoned(error)
    }
    replacement.recordCompaction(at: date, bytesBefore: journal.size)
    return .finished(replacement)
  }

  /// Performs all remaining steps, and returns the journal that replaces the old one.
  ///
  /// Nothing may be appended to the old journal during the call.
  @discardableResult
  mutating func finish(_ journal: Journal, at date: Date) throws(Failure) -> Journal {
    while true {
      switch try advance(journal, at: date) {
      case .unfinished: continue
      case .finished(let replacement): return replacement
      }
    }
  }

  /// Abandons the compaction, and removes its temporary file.
  func abandon() {
    replacement.abandon()
    // If the file can't be removed now, the next opening removes it.
    try? storage.removeUnlessReplaced(.replacement)
  }

  // MARK: Steps

  private mutating func copyTasks() throws {
    var batches: [[JournalBody]] = []
    var size = 0
    var count = 0
    while count < policy.stepTasks, size < policy.stepSize,
      let next = tasks.firstUsedSlot(from: slot)
    {
      freePages(before: next)
      slot = next + 1
      count += 1
      guard tasks[next].place != .staged else { continue }
      let lines = try lines(of: tasks[next], remembering: memories[next])
      underestimate.add(lines, estimate: tasks[next].byteCount)
      batches.append(lines + attemptLines(of: tasks[next]))
      size += batches[batches.count - 1].reduce(0) { $0 + $1.bytes.count + 64 }
    }
    try append(batches)
  }

  private mutating func copyValues() throws {
    var batches: [[JournalBody]] = []
    var size = 0
    while size < policy.stepSize, let value = values.popLast() {
      let line = try JournalBody(.value(named: value.name, value.value.bytes))
      underestimate.add([line], estimate: value.value.byteCount)
      batches.append([line])
      size += line.byteCount
    }
    try append(batches)
  }

  /// Frees the memory of the last copied page if the next task is in another page.
  private mutating func freePages(before next: Int) {
    guard slot > 0 else { return }
    let page = (slot - 1) / Slab<TaskTable.Entry>.pageSize
    if next / Slab<TaskTable.Entry>.pageSize > page { tasks.removePage(page) }
  }

  private func lines(
    of entry: TaskTable.Entry,
    remembering memory: TaskMemory
  ) throws -> [JournalBody] {
    var task = KeptTask(
      record: entry.record,
      // Only another program can have written a number that exceeds the limit.
      position: min(entry.position, KeptTask.maxPosition),
      hasLostKey: entry.isKeyless,
      orderNumber: min(entry.record.orderNumber, KeptTask.maxPosition)
    )
    if isLeased(entry) { task.record.state = .waiting }
    var lines = [try line(of: task)]
    if entry.remembers {
      try memory.forEach { name, value in
        lines.append(try JournalBody(.memory(task.record.id, named: name, value)))
      }
    }
    return lines
  }

  /// Returns the line for the start of a task's current attempt; none if there is no attempt, or
  /// the line is copied later.
  private func attemptLines(of entry: TaskTable.Entry) -> [JournalBody] {
    let id = entry.record.id
    return isLeased(entry) && !unwritten.contains(id) ? [JournalBody(attemptStartOf: id)] : []
  }

  private func isLeased(_ entry: TaskTable.Entry) -> Bool {
    if case .leased = entry.place { true } else { false }
  }

  /// Returns the line of a task.
  ///
  /// The line combines the contents of several earlier lines, so it may be too long although none
  /// of those was.
  private func line(of task: KeptTask) throws -> JournalBody {
    let line = try JournalBody(.task(task))
    guard line.byteCount <= JournalLine.maxLength else {
      throw Unreadable(description: "the line of task \(task.record.id) would be too long")
    }
    return line
  }

  /// Copies batches of lines that were added to the journal since the compaction started.
  ///
  /// A step copies up to twice as many bytes as were added since the previous step, so that the
  /// copy catches up with the journal, and at least the usual step size. A batch is never divided.
  private mutating func copyLines(of journal: Journal) throws {
    var count = max(policy.stepSize, 2 * (journal.size - seenSize))
    seenSize = journal.size
    while copied < journal.size {
      let bytes = try journal.read(min(count, journal.size - copied), at: copied)
      let (batches, length) = try Self.wholeBatches(in: bytes)
      if length > 0 {
        try append(batches)
        copied += length
        return
      }
      // The next batch is larger than `count`, so more bytes are read.
      guard bytes.count == count else {
        throw Unreadable(description: "the file is shorter than the lines that were written to it")
      }
      count *= 2
    }
  }

  /// Returns the complete batches at the start of the bytes, and their total length in bytes.
  private static func wholeBatches(in bytes: [UInt8]) throws -> ([[JournalBody]], length: Int) {
    var batches: [[JournalBody]] = []
    var batch: [JournalBody] = []
    var position = 0
    var length = 0
    while let end = bytes.lineFeed(from: position) {
      guard let line = JournalLine(bytes, position..<end) else {
        throw Unreadable(description: "a line of the file differs from what was written")
      }
      batch.append(JournalBody(bytes[line.body]))
      position = end + 1
      if !line.isContinued {
        batches.append(batch)
        batch = []
        length = position
      }
    }
    return (batches, length)
  }

  private mutating func append(_ batches: [[JournalBody]]) throws {
    let size = replacement.size
    try replacement.append(batches)
    unflushed += replacement.size - size
    guard unflushed >= policy.flushSize else { return }
    try replacement.synchronize()
    unflushed = 0
  }
}

/// When to compact a file, and how large the steps of a compaction are.
struct CompactionPolicy: Sendable {
  /// The size that a file must reach before it is compacted, in bytes.
  var minimumSize = 4 << 20
  /// The number of bytes by which a large file may exceed twice its compact size.
  var spareSize = 32 << 20
  /// The approximate number of bytes to write in a step, for which other work waits.
  var stepSize = 256 << 10
  /// The maximum number of tasks to write in a step.
  ///
  /// Encoding the line of a task takes time, even if the line is short.
  var stepTasks = 64
  /// The number of bytes to write between flushes.
  ///
  /// All other work waits for the last flush, so it should be short.
  var flushSize = 1 << 20

  /// Returns whether to compact a file: most of its lines are obsolete, and it is much larger than
  /// necessary.
  ///
  /// The compact size is the size that the file would have after a compaction. A small file may
  /// grow to four times its compact size, because rewriting tasks is slow: a compaction then
  /// rewrites one byte for each three that it drops. A large file may grow only to about twice its
  /// compact size, to save disk space.
  func isDue(size: Int, compactSize: Int, records: Int, liveRecords: Int) -> Bool {
    size >= minimumSize && records / 2 >= liveRecords
      && (size / 4 >= compactSize || (size - spareSize) / 2 >= compactSize)
  }
}

/// Makes copies of bytes that are about to be removed from a file.
enum BackupCopy {
  /// The number of bytes to copy at a time.
  private static let partSize = 1 << 20

  /// Makes a durable copy with a durable name, and returns its number.
  ///
  /// The number is the first one whose name is free, or is already that of an identical copy, which
  /// is used again. A new copy is complete before it gets its name. No other file is changed.
  static func makeCopy(
    of source: JournalSource,
    range: Range<Int>,
    named name: (Int) -> JournalFileName,
    in storage: any JournalStorage
  ) throws -> (number: Int, isNew: Bool) {
    var number = 1
    while try !reserveName(name(number), in: storage) {
      if try reuseCopy(named: name(number), of: source, range: range, in: storage) {
        return (number, false)
      }
      number += 1
    }
    do {
      try writeReplacement(from: source, range: range, in: storage)
      try storage.openFolder()
      // This replaces the empty file that has reserved the name.
      try storage.rename(.replacement, to: name(number))
      try storage.synchronizeFolder()
    } catch {
      // If the replacement can't be removed now, the next opening removes it. A complete copy does
      // no harm.
      try? storage.removeUnlessReplaced(.replacement)
      try? storage.removeUnlessReplaced(name(number))
      throw error
    }
    return (number, true)
  }

  /// Creates an empty file with a name, unless a file with the name exists.
  ///
  /// - Returns: Whether the file was created.
  static func reserveName(
    _ name: JournalFileName,
    in storage: any JournalStorage
  ) throws(FileOpeningError) -> Bool {
    do throws(FileOpeningError) {
      try storage.create(name).close()
      return true
    } catch {
      guard case .systemCall(let cause) = error, cause.number == EEXIST else { throw error }
      return false
    }
  }

  /// If an existing file is a copy of the range, makes it durable.
  ///
  /// - Returns: Whether the file is a copy of the range.
  private static func reuseCopy(
    named name: JournalFileName,
    of source: JournalSource,
    range: Range<Int>,
    in storage: any JournalStorage
  ) throws -> Bool {
    // A file that can't be opened, such as a link or another user's file, is not a copy.
    guard let file = try? storage.open(name) else { return false }
    defer { file.close() }
    guard try file.size() == range.count else { return false }
    for part in parts(of: range) {
      let bytes = try file.read(part.count, at: part.lowerBound - range.lowerBound)
      guard try bytes == source.read(part) else { return false }
    }
    try file.synchronize()
    try storage.synchronizeFolder()
    return true
  }

  private static func writeReplacement(
    from source: JournalSource,
    range: Range<Int>,
    in storage: any JournalStorage
  ) throws {
    try StaleTempFile.makeNameAvailable(in: storage, beside: source)
    let file = try storage.create(.replacement)
    defer { file.close() }
    for part in parts(of: range) {
      try file.writeAll(try source.read(part)[...], at: part.lowerBound - range.lowerBound)
    }
    try file.synchronize()
  }

  private static func parts(of range: Range<Int>) -> [Range<Int>] {
    stride(from: range.lowerBound, to: range.upperBound, by: partSize).map {
      $0..<min(range.upperBound, $0 + partSize)
    }
  }
}

/// A file that is already at the path of the temporary file, before the temporary file is created.
///
/// A crash may have left the file; then it is removed. Another program's file is never removed. If
/// the other program's file is in use or can't be opened safely, an error is thrown. Otherwise, it
/// is renamed.
struct StaleTempFile {
  /// The number of bytes to compare at a time.
  private static let partSize = 1 << 20

  private let file: any JournalFile
  private let size: Int

  /// Removes or renames the file that has the name of the temporary file, if there is one.
  ///
  /// The file is compared with the bytes of the current journal, if there is one, to find out
  /// whether a crash has left it. `copyStart` is the offset in the journal at which an unfinished
  /// copy of its bytes may start.
  ///
  /// - Throws: ``FileOpeningError/obstructed(_:)`` if the file must not be changed, or another
  /// error.
  static func makeNameAvailable(
    in storage: any JournalStorage,
    beside journal: JournalSource?,
    copyStart: Int = 0
  ) throws {
    guard let file = try openReplacement(in: storage) else { return }
    defer { file.close() }
    guard try !storage.hasLockFile(.replacement) else {
      throw FileOpeningError.obstructed("it has a lock file, so it belongs to another queue")
    }
    let leftover = StaleTempFile(file: file, size: try file.size())
    if try leftover.wasLeftByCrash(beside: journal)
      || leftover.isCopy(of: journal, from: copyStart)
    {
      return try storage.remove(.replacement)
    }
    var number = 1
    while try !BackupCopy.reserveName(.otherProgramsFile(number), in: storage) { number += 1 }
    try storage.rename(.replacement, to: .otherProgramsFile(number))
  }

  private static func openReplacement(
    in storage: any JournalStorage
  ) throws(FileOpeningError) -> (any JournalFile)? {
    do {
      return try storage.open(.replacement)
    } catch .unsafe(let reason, _) {
      throw .obstructed(reason)
    } catch .inUse {
      throw .obstructed("it is in use by another queue")
    } catch {
      throw error
    }
  }

  /// Returns whether a crash of this library has left the file, so that removing it loses nothing.
  private func wasLeftByCrash(beside journal: JournalSource?) throws -> Bool {
    let start = try file.read(min(size, JournalLine.maxEnvelopeLength * 4), at: 0)
    guard let journal, journal.count > 0 else {
      // There is no journal yet, so a crash can only have left a header.
      return isTornHeader(start) || Self.header(in: start)?.length == size
    }
    if isTornHeader(start) { return true }
    if let header = Self.header(in: start) {
      let first = try journal.read(0..<min(journal.count, JournalLine.maxEnvelopeLength * 4))
      let generation = Self.header(in: first)?.generation
      if let generation, header.generation == generation + (generation < .max ? 1 : 0) {
        return try !wasInUse()
      }
    }
    return try isCopy(of: journal, from: 0)
  }

  /// Returns whether a queue has used the file: if so, it contains lines that no compaction writes.
  ///
  /// The last line of a compaction has the kind `compacted`, and a compaction writes no seal. So if
  /// there is a seal, or a line after a `compacted` line, the file is a queue's file that was moved
  /// here.
  private func wasInUse() throws -> Bool {
    var (bytes, position, isCompacted) = ([UInt8](), 0, false)
    while bytes.count <= JournalLine.maxLength {
      let part = try file.read(min(Self.partSize, size - position), at: position)
      guard !part.isEmpty else { return false }
      position += part.count
      bytes += part
      var start = 0
      while let end = bytes.lineFeed(from: start) {
        guard let line = JournalLine(bytes, start..<end) else { return false }
        let body = bytes[line.body]
        if isCompacted || body.starts(with: JournalBody.seal.bytes) { return true }
        isCompacted = body.starts(with: #""k":"compacted""#.utf8)
        start = end + 1
      }
      bytes.removeFirst(start)
    }
    return false
  }

  /// Returns whether the file contains only an incomplete header.
  private func isTornHeader(_ start: [UInt8]) -> Bool {
    start.count == size && start.lineFeed(from: 0) == nil
      && (start.starts(with: JournalLine.prefix) || JournalLine.prefix.starts(with: start))
  }

  /// Reads the header at the start of a file; the length includes the line feed.
  static func header(in start: [UInt8]) -> (generation: Int, length: Int)? {
    guard let end = start.lineFeed(from: 0), let line = JournalLine(start, 0..<end) else {
      return nil
    }
    var decoder = JournalDecoder(start)
    guard case .header(_, let generation)? = try? decoder.readEntry(of: line) else { return nil }
    return (generation, end + 1)
  }

  /// Returns whether the file is a copy of the journal's bytes from `offset` on, ignoring zeros in
  /// the file.
  ///
  /// A power cut can replace parts of an unfinished copy with zeros.
  private func isCopy(of journal: JournalSource?, from offset: Int) throws -> Bool {
    for start in stride(from: 0, to: size, by: Self.partSize) {
      let bytes = try file.read(min(Self.partSize, size - start), at: start)
      let place = offset + start
      let end = min(journal?.count ?? 0, place + bytes.count)
      let other = place < end ? try journal?.read(place..<end) ?? [] : []
      let isEqual = bytes.indices.allSatisfy { index in
        bytes[index] == 0 || index < other.count && bytes[index] == other[index]
      }
      guard isEqual else { return false }
    }
    return true
  }
}

/// How much the estimated size of a compacted file was too small, measured by a compaction.
///
/// For example, the estimate does not count the escapes in some strings. All sizes are in bytes.
struct SizeUnderestimate: Sendable {
  /// The estimated size of the added lines.
  private var estimate = 0
  /// The maximum size of the added lines in the file.
  private var size = 0

  /// Adds lines that a compaction writes, and the estimate of their size.
  mutating func add(_ lines: [JournalBody], estimate: Int) {
    self.estimate += estimate
    size += lines.reduce(0) { $0 + $1.byteCount }
  }

  /// Returns the number of bytes to add to a later estimate.
  ///
  /// The number is 0 if the measured error is less than a quarter of the size, which is too small
  /// to matter. It is also 0 if the later estimate is at least a quarter smaller than the measured
  /// one: the tasks that caused the error may have been removed, and the next compaction measures
  /// the error again.
  func bytesToAdd(to estimate: Int) -> Int {
    guard size - self.estimate >= size / 4, estimate > self.estimate / 4 * 3 else { return 0 }
    return size - self.estimate
  }
}
