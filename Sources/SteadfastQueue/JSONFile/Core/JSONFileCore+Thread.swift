import Synchronization

// The jobs of the I/O thread, which run one after another: everything that touches the file.
extension JSONFileCore {
  /// Returns what the file holds.
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
        lastCompaction: journal.lastCompaction,
        failedCompaction: file?.failedCompaction
      )
    }
  }

  /// Writes the pending lines, then schedules the next write behind other jobs.
  ///
  /// The next write takes the lines that have gathered during this one.
  func writePending() {
    guard compactIfDue(), let group = takePending() else { return }
    if write(group) { goOnWriting() }
  }

  /// Schedules a write of what has gathered.
  ///
  /// During a flush, it does so only if tasks were claimed.
  private func goOnWriting() {
    let thread = state.withLock { state in
      state.isWriting =
        state.isFlushing ? state.pending.contains(where: \.isClaim) : !state.pending.isEmpty
      return state.isWriting ? state.thread : nil
    }
    thread?.add { self.writePending() }
  }

  private func takePending() -> [Submission]? {
    state.withLock { state in
      guard !state.pending.isEmpty else {
        state.isWriting = false
        return nil
      }
      // The jobs that wait for the end of the flushing come first: without a pause in the writes,
      // the flushing might never end.
      if !state.afterFlush.isEmpty, state.postponeWhileFlushing({ self.writePending() }) {
        return nil
      }
      defer { state.pending = [] }
      return state.pending
    }
  }

  fileprivate enum NextStep {
    /// The changes are committed.
    case answer
    /// A flush is under way. The next one flushes what was just written.
    case leave
    case flush(any JobThread)
  }

  /// Writes the lines of a group, and flushes them if that is due.
  ///
  /// - Returns: Whether the caller schedules the next write. A flush schedules it itself.
  private func write(_ group: [Submission]) -> Bool {
    do throws(Journal.Failure) {
      try checkPlace()
      try withJournal { journal throws(Journal.Failure) in
        try journal.append(group.map(\.lines))
      }
    } catch {
      fail(group, error)
      noteSize()
      return true
    }
    noteSize()
    // A claim must only outlast the process, so it needs no flush. Its tasks are leased already.
    for claim in group where claim.isClaim { claim.succeed() }
    let changes = group.filter { !$0.isClaim }
    guard !changes.isEmpty else { return true }
    switch state.withLock({ $0.nextStep(for: changes, flushing.moment) }) {
    case .answer:
      for submission in changes { submission.succeed() }
      if changes.contains(where: \.needsFlush) { flushLater() }
    case .leave:
      break
    case .flush(let thread):
      flushWritten(thread)
      return false
    }
    return true
  }

  /// Refuses to write to a file that has lost its name, or that another process has written.
  private func checkPlace() throws(Journal.Failure) {
    guard let (storage, journal) = file.withLock({ $0.map { ($0.storage, $0.journal) } }) else {
      return
    }
    try storage.checkPlace(of: journal)
  }

  /// Flushes the written changes until none are left, while other jobs go on.
  ///
  /// The changes that gather during one flush are written and flushed by the next, which begins at
  /// once. The callers of the first flush go on at the same time.
  private func flushWritten(_ thread: any JobThread) {
    goOnWriting()
    while state.withLock({ $0.takeWritten() }) {
      guard let flush = file.withLock({ $0?.journal.beginFlush() }) else { return }
      do throws(Journal.Failure) {
        try thread.yieldTurn { () throws(Journal.Failure) in _ = try flush.perform() }
      } catch {
        // A write that is under way now is rolled back too, when it has ended.
        thread.add { self.fail([], error) }
        return
      }
      file.withLock { $0?.journal.endFlush(flush) }
      let (goesOn, isBehind) = state.withLock { $0.endFlush() }
      if goesOn, !isBehind, thread.takeTurn() {
        thread.addConcurrent { self.answerCommitted() }
        writePending()
      } else {
        // If there is more to flush, the other thread is busy with a job that may take long.
        answerCommitted()
      }
    }
    endFlushing(thread)
  }

  /// Resumes the callers whose changes are committed.
  private func answerCommitted() {
    let committed = state.withLock { state in
      defer { state.committed = [] }
      return state.committed
    }
    for submission in committed { submission.succeed() }
  }

  /// Starts what was postponed until nothing is being flushed.
  private func endFlushing(_ thread: any JobThread) {
    let (jobs, hasGathered) = state.withLock { state in
      defer { state.afterFlush = [] }
      let hasGathered = !state.pending.isEmpty && !state.isWriting
      if hasGathered { state.isWriting = true }
      return (state.afterFlush, hasGathered)
    }
    for job in jobs { thread.add(job) }
    if hasGathered || jobs.isEmpty && isCompactionDue { thread.add { self.writePending() } }
  }

  /// Schedules a flush for when the interval has passed, unless one is scheduled already.
  private func flushLater() {
    guard case .atMostEvery(let interval) = flushing.moment else { return }
    let thread = state.withLock { state in
      defer { state.willFlush = true }
      return state.willFlush ? nil : state.thread
    }
    thread?.add(after: interval) { self.flushLate() }
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

  /// Rolls back everything that is staged, because a pending change may rest on one that failed.
  ///
  /// A change that was written before is rolled back only if the file can't be used any more.
  func fail(_ group: [Submission], _ failure: Journal.Failure) {
    let error = errors.writing(failure)
    // A caller that gets the error may close the store at once. The store has no thread then.
    let thread = state.withLock { $0.thread }
    let (failed, isPoisoned, lock) = state.withLock { state in
      var failed = group + state.pending
      state.pending = []
      if case .poisoned = failure { failed = state.takeUnflushed() + failed }
      for submission in failed.reversed() { submission.rollBack(&state.table) }
      // If a closing has begun in between, it closes the file itself.
      guard case .poisoned = failure, case .open = state.phase else {
        return (failed, false, FileLock?.none)
      }
      state.phase = .poisoned(error)
      isServing.store(false, ordering: .releasing)
      defer { state.lock = nil }
      return (failed, true, state.lock)
    }
    if isPoisoned {
      // This store can't use the file any more, but another store may open it.
      file.withLock { file in
        file?.compaction?.abandon()
        file?.journal.abandon()
        file = nil
      }
      lock?.release()
      tellCompactionWaiters(.failure(error))
    }
    for submission in failed { submission.fail(error) }
    if case .poisoned = failure, let thread { endFlushing(thread) }
  }
}

extension JSONFileCore.State {
  /// Postpones a job if something is being flushed, until nothing is.
  ///
  /// - Returns: Whether something is being flushed.
  mutating func postponeWhileFlushing(_ job: @escaping @Sendable () -> Void) -> Bool {
    if isFlushing { afterFlush.append(job) }
    return isFlushing
  }

  /// Returns what to do after changes were written.
  ///
  /// Commits the changes if they wait for no flush.
  fileprivate mutating func nextStep(
    for changes: [Submission],
    _ moment: JSONFileStore.Flushing.Moment
  ) -> JSONFileCore.NextStep {
    // Changes are committed in the order of the file, so one that needs no flush waits for earlier
    // ones.
    let mustFlush = moment == .eachBatch && changes.contains(where: \.needsFlush)
    guard mustFlush || isFlushing, let thread else {
      for submission in changes { submission.commit(to: &table) }
      return .answer
    }
    written += changes
    defer { isFlushing = true }
    return isFlushing ? .leave : .flush(thread)
  }

  /// Takes the written changes, to flush them.
  ///
  /// - Returns: Whether there are any.
  fileprivate mutating func takeWritten() -> Bool {
    isFlushing = !written.isEmpty
    flushing = written
    written = []
    return isFlushing
  }

  /// Commits the changes of a flush that has ended.
  ///
  /// - Returns: Whether there is more to flush, written or not, and whether callers of the flush
  ///   before still wait.
  fileprivate mutating func endFlush() -> (goesOn: Bool, isBehind: Bool) {
    let isBehind = !committed.isEmpty
    for submission in flushing { submission.commit(to: &table) }
    committed += flushing
    flushing = []
    return (!written.isEmpty || !pending.isEmpty, isBehind)
  }

  /// Takes the changes that were written and not flushed, of a file that is not flushed any more.
  fileprivate mutating func takeUnflushed() -> [Submission] {
    defer {
      flushing = []
      written = []
      isFlushing = false
    }
    return flushing + written
  }
}
