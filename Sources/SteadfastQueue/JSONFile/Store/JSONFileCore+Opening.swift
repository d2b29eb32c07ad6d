import Synchronization
import SystemC
import SystemFoundation

// Opening and closing the file, on the I/O thread.
extension JSONFileCore {
  func openFile() throws {
    if try state.withLock({ state in try isOpen(state.phase) }) { return }
    try errors.checkURL()
    try errors.checkSizes(in: options)
    var (lock, storage, opened) = try errors.translateErrors {
      let (lock, storage) = try opener()
      do {
        return (lock, storage, try openJournal(in: storage, protecting: lock))
      } catch {
        lock?.discard()
        throw error
      }
    }
    opened.journal.reservation = reservation
    file.withLock { file in
      file = OpenFile(
        storage: storage,
        journal: opened.journal,
        compactSize: opened.table.compactSize
      )
    }
    state.withLock { state in
      state.lock = lock
      state.table = opened.table
      state.size = opened.journal.size + opened.journal.pendingInterruptionByteCount
      // If the store has started to close during this job, it continues to close.
      if case .unopened = state.phase {
        state.phase = .open
        isServing.store(true, ordering: .releasing)
      }
    }
    compactIfDue()
  }

  /// The number of bytes to reserve at the end of the file; 0 for none.
  var reservation: Int { options.reservedSpace ?? 0 }

  private func openJournal(
    in storage: any JournalStorage,
    protecting lock: FileLock?
  ) throws -> (journal: Journal, table: TaskTable) {
    let opened = try Journal.open(storage, at: date)
    do {
      try lock?.protect()
      return opened
    } catch {
      opened.journal.abandon()
      throw error
    }
  }

  func closeFile() {
    if state.withLock({ $0.pipeline.postponeIfFlushing(.close) }) { return }
    // These are the last lines, because a closing store accepts no calls.
    if let threadToWrite = state.withLock({ $0.pipeline.pending.isEmpty ? nil : $0.thread }) {
      // This write may let another job run first, for example a step of a compaction.
      writePending()
      return threadToWrite.add { self.closeFile() }
    }
    let result = Result {
      try errors.translateErrors {
        try file.withLock { file in
          defer { file = nil }
          file?.compaction?.abandon()
          do {
            if state.withLock(\.deletesFile) { try file?.delete() } else { try file?.close() }
          } catch let failure as Journal.Failure {
            throw errors.closeFailedError(because: failure)
          }
        }
      }
    }
    let (lock, closers) = state.withLock { state in
      defer {
        if state.deletesFile, case .success = result { state.isDestroyed = true }
        state.phase = .closed
        state.lock = nil
        state.thread = nil
        state.closers = []
      }
      return (state.lock, state.closers)
    }
    lock?.release()
    resumeCompactionWaiters(with: .failure(errors.closed))
    for closer in closers { closer.resume(with: result) }
  }
}

extension JSONFileCore.State {
  enum ClosingStep {
    case close(any JobThread)
    /// Wait: another call is closing the store.
    case wait
    case done
    case fail(JSONFileError)
  }

  /// Makes the store refuse further calls, and returns how to close it.
  mutating func beginClosing(
    resuming closer: CheckedContinuation<Void, any Error>?
  ) -> ClosingStep {
    switch phase {
    case .closed:
      return .done
    case .poisoned(let error):
      // The failure has already closed the file.
      phase = .closed
      thread = nil
      return .fail(error)
    case .closing:
      if let closer { closers.append(closer) }
      return .wait
    case .unopened, .open:
      guard let thread else {
        phase = .closed
        return .done
      }
      phase = .closing
      if let closer { closers.append(closer) }
      return .close(thread)
    }
  }
}

extension JSONFileCore.OpenFile {
  mutating func close() throws {
    let check = Result { () throws(Journal.Failure) in try storage.checkLocation(of: journal) }
    if case .failure(.changed) = check {
      // Another program has changed the file, so no line is appended to it.
      try journal.closeWithoutSeal()
    } else {
      try journal.close()
    }
    try check.get()
  }

  /// Deletes the file, unless another file has replaced it.
  func delete() throws {
    journal.abandon()
    guard case .atItsPath = try storage.location(of: .journal) else {
      throw Journal.Failure.displaced
    }
    // The temporary file is removed first: if that fails, the queue's file still exists, and the
    // next call tries again.
    try storage.removeUnlessReplaced(.replacement)
    try storage.openFolder()
    try storage.remove(.journal)
    try storage.synchronizeFolder()
  }

  /// Uses the file that has replaced the old one in a compaction.
  mutating func replaceJournal(with replacement: Journal) {
    journal = replacement
    compactSize = replacement.size
    postponedSize = 0
    postponedCompactSize = 0
    failedCompaction = nil
  }

  /// Postpones the next compaction after one has failed.
  ///
  /// The next compaction starts when the file is twice as large, or when the tasks need half as
  /// many bytes as now. `compactSize` is the current size of the tasks. On a full disk, a smaller
  /// new file may fit.
  ///
  /// - Returns: Whether the previous compaction succeeded, or failed for another reason.
  mutating func postponeCompaction(
    _ failure: JSONFileStatistics.FailedCompaction,
    compactSize: Int
  ) -> Bool {
    postponedSize = failure.nextSize
    postponedCompactSize = compactSize / 2
    defer { failedCompaction = failure }
    return failure.reason != failedCompaction?.reason
  }
}

/// A queue's file that is used without opening a store.
struct DetachedFile {
  let url: URL

  var errors: JSONFileErrors { JSONFileErrors(url: url) }

  /// Performs `body` on a separate thread, with the file's lock, so that no store can open the
  /// file.
  ///
  /// If there is no lock file, one is created and removed again.
  ///
  /// - Throws: A ``JSONFileError``. If there is no file, no lock file is created.
  func performWithLock<Value: Sendable>(
    _ body: @escaping @Sendable (DetachedFile, FileStorage) throws -> Value
  ) async throws -> Value {
    let thread = try errors.translateErrors { try IOThread() }
    return try await RealWork.performInTurn {
      try await withCheckedThrowingContinuation { continuation in
        thread.add {
          continuation.resume(
            with: Result { try errors.translateErrors { try performWithLockNow(body) } }
          )
        }
      }
    }
  }

  private func performWithLockNow<Value>(
    _ body: (DetachedFile, FileStorage) throws -> Value
  ) throws -> Value {
    try errors.checkURL()
    guard let options = try FileStorage.currentOptions(ofFileAt: url.path) else {
      throw errors.missing
    }
    let lock = try FileLock.acquire(for: url.path, options)
    defer { lock.discard() }
    return try body(self, FileStorage(path: url.path, options))
  }
}

extension JSONFileCore {
  func verify() async throws -> JSONFileReport {
    let thread = try thread()
    return try await waitForThread { continuation in
      thread.add { self.verifyFile(continuation) }
    }
  }

  /// Compares the file with the store, and resumes the continuation with a report.
  ///
  /// This runs on the I/O thread when nothing is being written or flushed. So everything that is in
  /// the file is also committed in memory.
  func verifyFile(_ continuation: CheckedContinuation<JSONFileReport, any Error>) {
    if state.withLock({ $0.pipeline.postponeIfFlushing(.verify(continuation)) }) { return }
    continuation.resume(with: Result { try compareFileWithStore() })
  }

  private func compareFileWithStore() throws -> JSONFileReport {
    let (snapshot, claimed) = try state.withLock { state in
      guard try isOpen(state.phase) else { throw errors.closed }
      return (state.table.snapshot, state.claimedAndUnwritten)
    }
    return try errors.translateErrors {
      try file.withLock { file in
        guard let file else { throw errors.closed }
        return try Verification(of: file, snapshot, claimed: claimed).report
      }
    }
  }
}

/// Compares an open file with the tasks and values in memory.
private struct Verification {
  private(set) var report = JSONFileReport()
  private var problems = ProblemList()
  private let held: TaskTable.Snapshot
  private let claimed: Set<TaskID>

  init(
    of file: JSONFileCore.OpenFile,
    _ held: TaskTable.Snapshot,
    claimed: Set<TaskID>
  ) throws {
    self.held = held
    self.claimed = claimed
    report.generation = file.journal.generation
    if case .notAtItsPath = try file.storage.location(of: .journal) {
      problems.add("the file was deleted, moved or replaced: it is no longer at its path")
    }
    let whole = file.journal.source(ofFirst: try file.journal.sizeInFile())
    report.byteCount = whole.count
    if whole.count != file.journal.fileSize {
      problems.add("the file has \(whole.count) bytes instead of \(file.journal.fileSize)")
    }
    try compareLines(
      of: try whole.withoutReservation(),
      hasPendingInterruption: file.journal.hasPendingInterruption
    )
    countTasks()
    report.setProblems(to: problems)
  }

  private mutating func compareLines(of source: JournalSource, hasPendingInterruption: Bool) throws
  {
    do throws(JournalProblem) {
      var contents = try JournalReader.readAsWritten(source)
      // The tasks in memory were interrupted when the file was opened. The file does not contain
      // the line for that until the next write.
      if hasPendingInterruption { contents.table.interruptLeased() }
      report.version = contents.version
      report.recordCount = Int(contents.nextSequence)
      report.tornByteCount = source.count - contents.goodSize
      if report.tornByteCount > 0 {
        problems.add("the last \(report.tornByteCount) bytes can't be read")
      }
      try compareTasks(with: contents.table)
      compareValues(with: contents.table.values)
    } catch {
      try addProblems(of: try source.read(0..<source.count), refusedBecause: error)
    }
  }

  /// Adds all problems of a file that opening would refuse.
  private mutating func addProblems(
    of bytes: [UInt8],
    refusedBecause problem: JournalProblem
  ) throws {
    do throws(JournalProblem) {
      let found = try JournalInspection(bytes).report
      report.version = found.version
      report.recordCount = found.recordCount
      report.lostRecordCount = found.lostRecordCount
      for problem in found.problems { problems.add(problem) }
    } catch {
      problems.add("the file's contents were changed: \(problem)")
    }
  }

  // MARK: Values

  private mutating func compareValues(with file: StoredValues) {
    for name in held.values.union(file.packed).map(\.name).sorted() {
      let index = held.values.firstIndex(of: PackedValue(named: name))
      guard index.map({ held.values[$0].value.bytes }) != file[name] else { continue }
      problems.add("the value '\(name.prefix(80))' differs between the file and the store")
    }
  }

  // MARK: Tasks

  private mutating func compareTasks(with file: TaskTable) throws(JournalProblem) {
    var count = 0
    let entries = held.tasks
    for slot in 0..<entries.endSlot where entries[slot].place != .staged {
      count += 1
      let id = entries[slot].record.id
      guard let other = file.slot(of: id) else {
        problems.add("task \(id) is not in the file")
        continue
      }
      if lineBody(of: entries[slot]) != lineBody(of: file.entries[other]) {
        problems.add("task \(id) differs between the file and the store")
      } else if held.memories[slot] != file.memories[other] {
        problems.add(
          "the values that task \(id) remembers differ between the file and the store"
        )
      }
    }
    guard count != file.entries.count else { return }
    let known = Set(entries.committedIDs)
    for id in file.entries.slab.committedIDs.sorted() where !known.contains(id) {
      problems.add("task \(id) is only in the file")
    }
  }

  /// Returns the line that describes a task, with its position in the queue replaced by 0.
  private func lineBody(of entry: TaskTable.Entry) -> [UInt8]? {
    var record = entry.record
    if claimed.contains(record.id) { record.state = .waiting }
    let task = KeptTask(record: record, position: 0, hasLostKey: entry.isKeyless)
    return try? JournalBody(.task(task)).bytes
  }

  private mutating func countTasks() {
    let entries = held.tasks
    for slot in 0..<entries.endSlot where entries[slot].place != .staged {
      report.counts[entries[slot].record.state, default: 0] += 1
    }
  }
}

extension Slab<TaskTable.Entry> {
  /// The IDs of the tasks whose insertion is stored.
  fileprivate var committedIDs: [TaskID] {
    (0..<endSlot).compactMap { self[$0].place == .staged ? nil : self[$0].record.id }
  }
}

// Deleting the file, whether the store has it open or not.
extension JSONFileCore {
  /// Deletes the file and closes the store.
  func destroy() async throws {
    if isForkedChild { throw errors.usedByForkedChild }
    let isOpen = state.withLock { state in
      guard case .open = state.phase else { return false }
      state.deletesFile = true
      return true
    }
    // Closing the store deletes the file, because `deletesFile` is set.
    if isOpen { return try await close() }
    // The file is deleted even if closing the store fails.
    try? await close()
    try await deleteClosedFile()
  }

  /// Deletes a file that this store does not have open.
  ///
  /// If another call is already deleting the file, this call waits for the result of that deletion.
  private func deleteClosedFile() async throws {
    try await waitForThread { continuation in
      switch state.withLock({ $0.beginDestroying(resuming: continuation) }) {
      case .wait: break
      case .done: continuation.resume()
      case .delete:
        do {
          try errors.translateErrors { try makeThread() }.add {
            self.endDestroying(
              with: Result { try self.errors.translateErrors { try self.deleteFileNow() } }
            )
          }
        } catch {
          endDestroying(with: .failure(error))
        }
      }
    }
  }

  private func endDestroying(with result: Result<Void, any Error>) {
    let callers = state.withLock { state in
      defer { state.destroyers = [] }
      if case .success = result { state.isDestroyed = true }
      return state.destroyers
    }
    for caller in callers { caller.resume(with: result) }
  }

  private func deleteFileNow() throws {
    try errors.checkURL()
    let (lock, storage): (FileLock?, any JournalStorage)
    do {
      (lock, storage) = try opener()
    } catch FileLock.Failure.opening(.systemCall(let error)) where error.number == ENOENT {
      // The folder does not exist, so there is no file to delete.
      return
    }
    defer { lock?.discard() }
    // An earlier call may have deleted the file without making the deletion durable.
    guard let file = try storage.open(.journal) else { return try storage.synchronizeFolder() }
    defer { file.close() }
    let source = try JournalSource(file)
    try checkFormat(of: source)
    // A temporary file that a crash has left contains tasks too, and must be removed. It can only
    // be recognized while the queue's file exists. Another program's file is not removed.
    do {
      try StaleTempFile.makeNameAvailable(in: storage, beside: source)
    } catch is FileOpeningError {}
    try storage.openFolder()
    try storage.remove(.journal)
    try storage.synchronizeFolder()
  }

  /// Throws an error if the file is not a queue's file.
  ///
  /// An empty file counts as a queue's file, and so does one that is damaged, or that a newer
  /// version has written.
  private func checkFormat(of source: JournalSource) throws {
    guard try source.withoutReservation().count > 0 else { return }
    let start = try source.read(0..<min(source.count, JournalLine.maxEnvelopeLength * 4))
    if StaleTempFile.header(in: start) != nil { return }
    do throws(JournalProblem) {
      _ = try JournalReader.read(source)
    } catch {
      switch error {
      case .notAJournal, .unreadable: throw error
      case .newerVersion, .unknownKind, .damaged: return
      }
    }
  }
}

extension JSONFileCore.State {
  fileprivate enum DestroyingStep {
    case delete
    /// Wait: another call is deleting the file.
    case wait
    case done
  }

  /// Returns what a call does to delete a file that the store does not have open.
  fileprivate mutating func beginDestroying(
    resuming caller: CheckedContinuation<Void, any Error>
  ) -> DestroyingStep {
    if isDestroyed { return .done }
    destroyers.append(caller)
    return destroyers.count == 1 ? .delete : .wait
  }
}
