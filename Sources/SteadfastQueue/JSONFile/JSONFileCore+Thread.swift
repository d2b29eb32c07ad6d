import Synchronization

// What happens on the thread, one thing after another: all that touches the file.
extension JSONFileCore {
  func openFile() throws {
    if try state.withLock({ state in try isOpen(state.phase) }) { return }
    let (lock, storage, opened) = try errors.translating {
      let (lock, storage) = try opener()
      return (lock, storage, try Journal.open(storage))
    }
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
      state.size = opened.journal.size
      // A closing that has begun meanwhile goes on.
      if case .unopened = state.phase { state.phase = .open }
    }
    compactIfDue()
  }

  func closeFile() {
    // Nothing is added any more.
    writePending()
    let result = Result {
      try errors.translating {
        try file.withLock { file in
          defer { file = nil }
          file?.compaction?.abandon()
          let deletes = state.withLock(\.deletesFile)
          if deletes { file?.journal.abandon() } else { try file?.journal.close() }
          // Another file that somebody has put there is not deleted.
          guard try file?.storage.isInPlace(.journal) ?? true else {
            throw Journal.Failure.displaced
          }
          guard deletes else { return }
          try file?.storage.remove(.journal)
          try file?.storage.remove(.replacement)
          try file?.storage.synchronizeFolder()
        }
      }
    }
    let (lock, closers) = state.withLock { state in
      defer {
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

  /// What the file holds.
  func readStatistics() throws -> JSONFileStatistics {
    let (tasks, live) = try state.withLock { state in
      guard try isOpen(state.phase) else { throw errors.closed }
      return (state.table.taskCount, state.table.liveRecordCount)
    }
    return try file.withLock { file in
      guard let journal = file?.journal else { throw errors.closed }
      return JSONFileStatistics(
        taskCount: tasks,
        recordCount: Int(journal.nextSequence),
        liveRecordCount: live,
        byteCount: journal.size,
        lastCompaction: journal.lastCompaction
      )
    }
  }

  func writePending() {
    while let group = takePending() { write(group) }
    compactIfDue()
  }

  private func takePending() -> [Submission]? {
    state.withLock { state in
      guard !state.pending.isEmpty else {
        state.isWriting = false
        return nil
      }
      defer { state.pending = [] }
      return state.pending
    }
  }

  private func write(_ group: [Submission]) {
    do throws(Journal.Failure) {
      try checkPlace()
      try withJournal { journal throws(Journal.Failure) in
        try journal.append(group.map(\.lines))
      }
    } catch {
      fail(group, error)
      return noteSize()
    }
    noteSize()
    // A claim need only survive the process; what it leased is leased already.
    for claim in group where claim.isClaim { claim.succeed() }
    let changes = group.filter { !$0.isClaim }
    do throws(Journal.Failure) {
      if changes.contains(where: \.needsFlush) { try flush() }
    } catch {
      return fail(changes, error)
    }
    state.withLock { state in
      for submission in changes { submission.commit(to: &state.table) }
    }
    for submission in changes { submission.succeed() }
  }

  /// Refuses to write to a file that nobody would find again.
  private func checkPlace() throws(Journal.Failure) {
    let storage = file.withLock { $0?.storage }
    do throws(SystemCallError) {
      if try storage?.isInPlace(.journal) ?? true { return }
    } catch {
      throw .refused(error)
    }
    throw .displaced
  }

  /// Flushes what was written, now or later.
  private func flush() throws(Journal.Failure) {
    switch flushing.moment {
    case .eachBatch:
      try withJournal { journal throws(Journal.Failure) in try journal.synchronize() }
    case .atMostEvery(let interval):
      let thread = state.withLock { state in
        defer { state.willFlush = true }
        return state.willFlush ? nil : state.thread
      }
      thread?.add(after: interval) { self.flushLate() }
    case .leftToSystem:
      break
    }
  }

  private func flushLate() {
    state.withLock { $0.willFlush = false }
    guard file.withLock({ $0 != nil }) else { return }
    do throws(Journal.Failure) {
      try withJournal { journal throws(Journal.Failure) in try journal.synchronize() }
    } catch {
      fail([], error)
    }
  }

  private func withJournal(
    _ body: (inout Journal) throws(Journal.Failure) -> Void
  ) throws(Journal.Failure) {
    try file.withLock { file throws(Journal.Failure) in
      guard var open = file.take() else {
        preconditionFailure("lines were written to a closed file")
      }
      defer { file = open }
      try body(&open.journal)
    }
  }

  /// Takes everything back that is staged: what is pending may rest on what has failed.
  func fail(_ group: [Submission], _ failure: Journal.Failure) {
    let error = errors.writing(failure)
    let (failed, isPoisoned, lock) = state.withLock { state in
      let failed = group + state.pending
      state.pending = []
      for submission in failed.reversed() { submission.rollBack(&state.table) }
      // A closing that has begun meanwhile gives the file up itself.
      guard case .poisoned = failure, case .open = state.phase else {
        return (failed, false, FileLock?.none)
      }
      state.phase = .poisoned(error)
      defer { state.lock = nil }
      return (failed, true, state.lock)
    }
    if isPoisoned {
      // Nothing can be done with the file any more, but another store may open it anew.
      file.withLock { file in
        file?.compaction?.abandon()
        file?.journal.abandon()
        file = nil
      }
      lock?.release()
      tellCompactionWaiters(.failure(error))
    }
    for submission in failed { submission.fail(error) }
  }
}
