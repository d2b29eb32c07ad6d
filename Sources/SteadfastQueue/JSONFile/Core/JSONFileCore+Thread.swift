import Synchronization

// What happens on the thread, one thing after another: all that touches the file.
extension JSONFileCore {
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
        lastCompaction: journal.lastCompaction,
        failedCompaction: file?.failedCompaction
      )
    }
  }

  /// Writes what has gathered, and comes again for what gathers meanwhile, behind other jobs.
  func writePending() {
    guard compactIfDue(), let group = takePending() else { return }
    if write(group) { goOnWriting() }
  }

  /// Writes what has gathered meanwhile; beside a flush only if somebody has claimed tasks.
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
      // What waits for the end of a flush comes first: else there might never be one.
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
    /// Somebody flushes already, and then what was just written.
    case leave
    case flush(any JobThread)
  }

  /// Whether this thread goes on writing.
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
    // A claim need only survive the process; what it leased is leased already.
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

  /// Refuses to write to a file that nobody would find again, or that somebody else has written.
  private func checkPlace() throws(Journal.Failure) {
    guard let (storage, journal) = file.withLock({ $0.map { ($0.storage, $0.journal) } }) else {
      return
    }
    try storage.checkPlace(of: journal)
  }

  /// Flushes what was written until nothing is left, while the thread goes on with other jobs.
  ///
  /// What has gathered during one flush is written and flushed by the next, which begins at once:
  /// the callers of the first are let go on beside it.
  private func flushWritten(_ thread: any JobThread) {
    goOnWriting()
    while state.withLock({ $0.takeWritten() }) {
      guard let flush = file.withLock({ $0?.journal.beginFlush() }) else { return }
      do throws(Journal.Failure) {
        try thread.handOn { () throws(Journal.Failure) in _ = try flush.perform() }
      } catch {
        // What is being written beside this is taken back, too, when it is written.
        thread.add { self.fail([], error) }
        return
      }
      file.withLock { $0?.journal.endFlush(flush) }
      let (goesOn, isBehind) = state.withLock { $0.endFlush() }
      if goesOn, !isBehind, thread.takeTurn() {
        thread.addBeside { self.answerCommitted() }
        writePending()
      } else {
        // If there is more, the other thread is at work on something else, which may take long.
        answerCommitted()
      }
    }
    endFlushing(thread)
  }

  /// Lets those go on whose changes are stored.
  private func answerCommitted() {
    let committed = state.withLock { state in
      defer { state.committed = [] }
      return state.committed
    }
    for submission in committed { submission.succeed() }
  }

  /// Nothing is being flushed any more: what has waited for that goes on.
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

  /// Flushes what was written when an interval has passed.
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

  /// Takes everything back that is staged: what is pending may rest on what has failed.
  ///
  /// What was written before is only lost with the file.
  func fail(_ group: [Submission], _ failure: Journal.Failure) {
    let error = errors.writing(failure)
    // Whoever is told of the failure may close the store at once, which has no thread then.
    let thread = state.withLock { $0.thread }
    let (failed, isPoisoned, lock) = state.withLock { state in
      var failed = group + state.pending
      state.pending = []
      if case .poisoned = failure { failed = state.takeUnflushed() + failed }
      for submission in failed.reversed() { submission.rollBack(&state.table) }
      // A closing that has begun meanwhile gives the file up itself.
      guard case .poisoned = failure, case .open = state.phase else {
        return (failed, false, FileLock?.none)
      }
      state.phase = .poisoned(error)
      isServing.store(false, ordering: .releasing)
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
    if case .poisoned = failure, let thread { endFlushing(thread) }
  }
}

extension JSONFileCore.State {
  /// Whether something is being flushed; then the job is done when nothing is.
  mutating func postponeWhileFlushing(_ job: @escaping @Sendable () -> Void) -> Bool {
    if isFlushing { afterFlush.append(job) }
    return isFlushing
  }

  /// Changes were written.
  fileprivate mutating func nextStep(
    for changes: [Submission],
    _ moment: JSONFileStore.Flushing.Moment
  ) -> JSONFileCore.NextStep {
    // Changes are committed in the order of the file: one that needs no flush waits for those before.
    let mustFlush = moment == .eachBatch && changes.contains(where: \.needsFlush)
    guard mustFlush || isFlushing, let thread else {
      for submission in changes { submission.commit(to: &table) }
      return .answer
    }
    written += changes
    defer { isFlushing = true }
    return isFlushing ? .leave : .flush(thread)
  }

  /// Whether there is something to flush.
  fileprivate mutating func takeWritten() -> Bool {
    isFlushing = !written.isEmpty
    flushing = written
    written = []
    return isFlushing
  }

  /// A flush has ended; whether there is more to flush, written or not, and whether callers of the
  /// last one still wait.
  fileprivate mutating func endFlush() -> (goesOn: Bool, isBehind: Bool) {
    let isBehind = !committed.isEmpty
    for submission in flushing { submission.commit(to: &table) }
    committed += flushing
    flushing = []
    return (!written.isEmpty || !pending.isEmpty, isBehind)
  }

  /// What is written and not flushed, of a file that nobody will flush.
  fileprivate mutating func takeUnflushed() -> [Submission] {
    defer {
      flushing = []
      written = []
      isFlushing = false
    }
    return flushing + written
  }
}
