import Synchronization

// The first and the last job on the I/O thread: opening and closing the file.
extension JSONFileCore {
  func openFile() throws {
    if try state.withLock({ state in try isOpen(state.phase) }) { return }
    try errors.checkURL()
    try errors.check(options)
    var (lock, storage, opened) = try errors.translating {
      let (lock, storage) = try opener()
      do {
        return (lock, storage, try open(storage, lock))
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
      state.size = opened.journal.size + opened.journal.owedByteCount
      // If a closing has begun in between, it goes on.
      if case .unopened = state.phase {
        state.phase = .open
        isServing.store(true, ordering: .releasing)
      }
    }
    compactIfDue()
  }

  /// How many bytes to reserve when the reserved space is used up; 0 for none.
  var reservation: Int { options.reservedSpace ?? 0 }

  private func open(
    _ storage: any JournalStorage,
    _ lock: FileLock?
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
    if state.withLock({ $0.pipeline.postponeWhileFlushing(.close) }) { return }
    // The store is closing, so no call adds lines any more.
    if let threadToWrite = state.withLock({ $0.pipeline.pending.isEmpty ? nil : $0.thread }) {
      // This write may yield the turn, for example to a step of a compaction.
      writePending()
      return threadToWrite.add { self.closeFile() }
    }
    let result = Result {
      try errors.translating {
        try file.withLock { file in
          defer { file = nil }
          file?.compaction?.abandon()
          do {
            if state.withLock(\.deletesFile) { try file?.delete() } else { try file?.close() }
          } catch let failure as Journal.Failure {
            throw errors.closing(failure)
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
    tellCompactionWaiters(.failure(errors.closed))
    for closer in closers { closer.resume(with: result) }
  }
}

extension JSONFileCore.State {
  enum ClosingStep {
    case close(any JobThread)
    /// The store is closing already: wait for the end of that.
    case wait
    case done
    case fail(JSONFileError)
  }

  /// Refuses further calls, and returns how the file is to be closed.
  mutating func beginClosing(
    _ closer: CheckedContinuation<Void, any Error>?
  ) -> ClosingStep {
    switch phase {
    case .closed:
      return .done
    case .poisoned(let error):
      // The file was closed when the failure happened.
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
  /// Closes the file.
  ///
  /// If another process has written the file, this makes its contents durable, as they are.
  mutating func close() throws {
    let place = Result { () throws(Journal.Failure) in try storage.checkPlace(of: journal) }
    if case .failure(.changed) = place { try journal.closeAsItIs() } else { try journal.close() }
    try place.get()
  }

  /// Deletes the file, unless another one is in its place.
  func delete() throws {
    journal.abandon()
    guard case .there = try storage.place(of: .journal) else { throw Journal.Failure.displaced }
    // While the file is there, the next call tries again.
    try storage.removeOwn(.replacement)
    try storage.openFolder()
    try storage.remove(.journal)
    try storage.synchronizeFolder()
  }

  /// Goes on with the file that a compaction has put in the place of this one.
  mutating func replaceJournal(with replacement: Journal) {
    journal = replacement
    compactSize = replacement.size
    postponedSize = 0
    postponedCompactSize = 0
    failedCompaction = nil
  }

  /// Postpones the next compaction after one has failed.
  ///
  /// It waits until the file has twice its size, or the tasks take half as many bytes as now,
  /// `compactSize`: then there may be room for them on a full disk.
  ///
  /// - Returns: Whether the reason is another one than that of the last failure.
  mutating func putCompactionOff(
    _ failure: JSONFileStatistics.FailedCompaction,
    compactSize: Int
  ) -> Bool {
    postponedSize = failure.nextSize
    postponedCompactSize = compactSize / 2
    defer { failedCompaction = failure }
    return failure.reason != failedCompaction?.reason
  }
}
