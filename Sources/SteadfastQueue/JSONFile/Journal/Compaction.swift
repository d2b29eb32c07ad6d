import SystemC
import SystemFoundation

/// Rewrites a file without its obsolete lines, in steps between which other work is done.
///
/// A compaction has three phases. First, it writes the tasks and the values as they were when it
/// started, from a copy that shares memory with the table until one of them changes. Then it copies
/// the lines that were added to the journal in the meantime. When nothing is left to copy, the new
/// file replaces the journal. The journal is unchanged until that moment, so a failure costs only
/// the temporary file. As in any journal, each line says up to which line the file had been flushed
/// when it was written.
struct Compaction {
  /// The progress of a compaction.
  enum Progress {
    case unfinished
    /// The new journal has replaced the old one.
    case finished(Journal)
  }

  /// The reason that a compaction was abandoned.
  enum Failure: Error {
    /// Nothing has changed.
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

  /// The journal's contents are not those that were written, or a line would be too long to read.
  struct Unreadable: Error {
    let description: String
  }

  private let storage: any JournalStorage
  private let policy: CompactionPolicy
  /// The tasks to copy.
  ///
  /// The memory of copied pages is freed along the way: freeing all of it at the end would take
  /// long.
  private var tasks: Slab<TaskTable.Entry>
  /// The values that these tasks remember.
  private let memories: TaskMemories
  /// The values to copy, the next one last.
  private var values: [PackedValue]
  /// Tasks whose attempts are not in the journal yet.
  ///
  /// Later lines of the journal record these attempts, and are copied later.
  private let unwritten: Set<TaskID>
  /// The first slot that may contain a task that is not copied yet.
  private var slot = 0
  /// The offset up to which the journal was copied.
  private var copied: Int
  /// The size of the journal at the last step.
  private var seenSize: Int
  private var replacement: Journal
  private var unflushed = 0
  /// The difference between the size of the lines of tasks and values and its estimate.
  private(set) var underestimate = SizeEstimateError()

  /// Starts a compaction of a journal.
  ///
  /// The committed contents of the snapshot are exactly those of the journal. The tasks in
  /// `claimed` are leased, although the journal does not say so yet.
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
    // The values are sorted, so that each compaction writes them in the same order.
    values = snapshot.values.sorted { $1.nameBytes.lexicographicallyPrecedes($0.nameBytes) }
    unwritten = claimed
    copied = journal.size
    seenSize = journal.size
    // Only a number that another program wrote can be the maximum.
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
      // After the file is renamed, everything that makes the name durable must be available.
      try storage.openFolder()
      // A journal that another program replaced or changed is not overwritten.
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

  /// Abandons the compaction, and removes its file.
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

  /// Frees the page of the last copied task if the next task is in another page.
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
      // Only a number that another program wrote can exceed the limit.
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

  /// Returns the line for the start of a task's attempt, if the journal contains one.
  private func attemptLines(of entry: TaskTable.Entry) -> [JournalBody] {
    let id = entry.record.id
    return isLeased(entry) && !unwritten.contains(id) ? [JournalBody(attemptStartOf: id)] : []
  }

  private func isLeased(_ entry: TaskTable.Entry) -> Bool {
    if case .leased = entry.place { true } else { false }
  }

  /// Returns the line of a task.
  ///
  /// The line combines the contents of several lines. It may be too long to read although none of
  /// those lines was.
  private func line(of task: KeptTask) throws -> JournalBody {
    let line = try JournalBody(.task(task))
    guard line.byteCount <= JournalLine.maxLength else {
      throw Unreadable(description: "the line of task \(task.record.id) would be too long")
    }
    return line
  }

  /// Copies whole batches of lines that were added to the journal since the compaction started.
  ///
  /// A step copies up to twice the number of bytes that the journal gained since the last step, or
  /// the usual step size if that is more. So the copy catches up with the journal. A larger batch
  /// is copied as a whole.
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
      // These bytes contain no whole batch: the next one is larger than a step.
      guard bytes.count == count else {
        throw Unreadable(description: "the file is shorter than the lines that were written to it")
      }
      count *= 2
    }
  }

  /// Returns the whole batches at the start of these bytes, and their length in bytes.
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

/// When to compact a file, and how large the steps are.
struct CompactionPolicy: Sendable {
  /// The size that a file must reach before it is compacted, in bytes.
  var minimumSize = 4 << 20
  /// The number of bytes by which a file may exceed twice its compact size.
  var spareSize = 32 << 20
  /// The approximate number of bytes that a step writes while other work waits.
  var stepSize = 256 << 10
  /// The maximum number of tasks that a step writes.
  ///
  /// The line of each task is encoded again.
  var stepTasks = 64
  /// The number of bytes to write between flushes.
  ///
  /// All work waits for the last flush, so it should be short.
  var flushSize = 1 << 20

  /// Returns whether a compaction is due: most lines are dead, and the file is far too large.
  ///
  /// The compact size is the size after the last compaction or at the opening, or the present size
  /// of the tasks if that is less. Rewriting a task costs more than writing the lines of its life.
  /// So a small file may grow to four times its compact size: one byte is rewritten for three that
  /// are dropped. For a large file, disk space may cost more, so there the ratio is about one to
  /// one.
  func isDue(size: Int, compactSize: Int, records: Int, liveRecords: Int) -> Bool {
    size >= minimumSize && records / 2 >= liveRecords
      && (size / 4 >= compactSize || (size - spareSize) / 2 >= compactSize)
  }
}

/// A copy of the part of a file that is about to be lost, under an unused name.
enum BackupCopy {
  /// The number of bytes to copy at a time.
  private static let partSize = 1 << 20

  /// Makes a durable copy with a durable name, and returns its number.
  ///
  /// An existing identical copy is reused. A new copy is complete before it gets its name. No other
  /// file with such a name is changed.
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
      // This replaces the empty file that reserved the name.
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

  /// Creates an empty file with a name, if the name is free.
  ///
  /// - Returns: Whether the name was free.
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

  /// Makes an existing file durable if the file is a copy of the range.
  ///
  /// - Returns: Whether the file is such a copy.
  private static func reuseCopy(
    named name: JournalFileName,
    of source: JournalSource,
    range: Range<Int>,
    in storage: any JournalStorage
  ) throws -> Bool {
    // A file that can't be opened is not a copy: it may be a link or another user's file.
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

/// A file that already has the replacement's name when a replacement is needed.
///
/// A crash may leave an unfinished file, which is removed. Another program's file is never removed.
/// If that file is in use, or clearly not a journal, an error is thrown. Otherwise, the file is
/// renamed.
struct StaleTempFile {
  /// The number of bytes to compare at a time.
  private static let partSize = 1 << 20

  private let file: any JournalFile
  private let size: Int

  /// Makes the name available, or throws, for instance ``FileOpeningError/obstructed(_:)``.
  ///
  /// To identify the file, it is compared with the present journal's bytes, if there is a journal.
  /// `copyStart` is the offset in the journal at which an unfinished copy of its bytes may start.
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
      || leftover.isPart(of: journal, from: copyStart)
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

  /// Returns whether this library wrote the file, and removing it loses nothing.
  private func wasLeftByCrash(beside journal: JournalSource?) throws -> Bool {
    let start = try file.read(min(size, JournalLine.maxEnvelopeLength * 4), at: 0)
    guard let journal, journal.count > 0 else {
      // A new file contains only its header.
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
    return try isPart(of: journal, from: 0)
  }

  /// Returns whether the file was in use as a queue's file.
  ///
  /// A compaction ends with a special line, and never writes a seal. So a file that continues after
  /// such a line, or has a seal, is a queue's file that was moved here.
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

  /// Returns whether the file contains only the start of a header.
  private func isTornHeader(_ start: [UInt8]) -> Bool {
    start.count == size && start.lineFeed(from: 0) == nil
      && (start.starts(with: JournalLine.prefix) || JournalLine.prefix.starts(with: start))
  }

  /// Returns the generation in the first line, and the length of that line with its line feed.
  static func header(in start: [UInt8]) -> (generation: Int, length: Int)? {
    guard let end = start.lineFeed(from: 0), let line = JournalLine(start, 0..<end) else {
      return nil
    }
    var decoder = JournalDecoder(start)
    guard case .header(_, let generation)? = try? decoder.readEntry(of: line) else { return nil }
    return (generation, end + 1)
  }

  /// Returns whether the journal contains the file's bytes from `offset` on, ignoring zeros.
  ///
  /// Such a file is an unfinished copy, or the part of one that survived a power cut.
  private func isPart(of journal: JournalSource?, from offset: Int) throws -> Bool {
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

/// How far a table underestimates the size of a compacted file, measured by a compaction.
///
/// The estimate counts some texts without the escapes that they need, for example. All sizes are in
/// bytes.
struct SizeEstimateError: Sendable {
  /// The estimated size of the lines.
  private var estimate = 0
  /// The maximum actual size of the lines.
  private var size = 0

  /// Adds lines that a compaction writes.
  mutating func add(_ lines: [JournalBody], estimate: Int) {
    self.estimate += estimate
    size += lines.reduce(0) { $0 + $1.byteCount }
  }

  /// Returns the number of bytes to add to an estimate.
  ///
  /// The number is 0 if less than a quarter was missing: so small an error causes no needless
  /// compaction. It is also 0 if the estimate has fallen by a quarter since then: the tasks that
  /// caused the error may have been removed, and the next compaction measures the error again.
  func excess(over estimate: Int) -> Int {
    guard size - self.estimate >= size / 4, estimate > self.estimate / 4 * 3 else { return 0 }
    return size - self.estimate
  }
}
