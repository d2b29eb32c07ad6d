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
    guard compactIfDue(),
      let group = state.withLock({ $0.pipeline.takePending(orPostpone: .write) })
    else { return }
    if write(group) { goOnWriting() }
  }

  /// Writes the pending claims on the calling thread, unless a job has the turn or waits for it.
  ///
  /// - Returns: Whether it has written them.
  func writeClaimsNow(_ thread: any JobThread) -> Bool {
    var isDone = false
    _ = thread.performNow {
      // Only the store's own threads block signals.
      guard file.withLock({ $0?.storage.isSizeLimited == false }),
        let claims = state.withLock({ $0.pipeline.takeClaims() })
      else { return }
      _ = write(claims, isByCaller: true)
      goOnWriting()
      isDone = true
    }
    return isDone
  }

  /// Schedules a write of what has gathered.
  ///
  /// During a flush, it does so only if tasks were claimed.
  private func goOnWriting() {
    let thread = state.withLock { $0.pipeline.writeAgain() ? $0.thread : nil }
    thread?.add { self.writePending() }
  }

  /// Does the jobs that were postponed until nothing is being flushed.
  private func perform(_ job: PostponedJob) {
    switch job {
    case .write: writePending()
    case .close: closeFile()
    case .verify(let continuation): verifyFile(continuation)
    }
  }

  /// Writes the lines of a group, and flushes them if that is due.
  ///
  /// - Returns: Whether the caller schedules the next write. A flush schedules it itself.
  private func write(_ group: [Submission], isByCaller: Bool = false) -> Bool {
    do throws(Journal.Failure) {
      try checkPlace()
      try withJournal { journal throws(Journal.Failure) in
        // To reserve space takes longer than to write a claim.
        try journal.append(group.map(\.lines), reserves: !isByCaller)
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
    let (next, thread) = state.withLock { ($0.wrote(changes, flushing.moment), $0.thread) }
    switch (next, thread) {
    case (.commit, _):
      for submission in changes { submission.succeed() }
      if changes.contains(where: \.needsFlush) { flushLater() }
      return true
    case (.wait, _): return true
    case (.flush, let thread?):
      flushWritten(thread)
      return false
    case (.flush, nil): preconditionFailure("a store without a thread has written")
    }
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
  /// The changes that gather during one flush are written and flushed by the next, which begins
  /// when the callers of the first are resumed.
  private func flushWritten(_ thread: any JobThread) {
    goOnWriting()
    while state.withLock({ $0.pipeline.beginFlush() }) {
      guard let flush = file.withLock({ $0?.journal.beginFlush() }) else { return }
      do throws(Journal.Failure) {
        try thread.yieldTurn { () throws(Journal.Failure) in _ = try flush.perform() }
      } catch {
        // A write that is under way now is rolled back too, when it has ended.
        thread.add { self.fail([], error) }
        return
      }
      file.withLock { $0?.journal.endFlush(flush) }
      let end = state.withLock { $0.endFlush() }
      // Some of the callers come back before the next write, which then takes their changes, too.
      for submission in end.flushed { submission.succeed() }
      // If there is more to flush and the turn is taken, a job that may take long has it.
      if end.goesOn, thread.takeTurn() { writePending() }
    }
    endFlushing(thread)
  }

  /// Starts what was postponed until nothing is being flushed.
  private func endFlushing(_ thread: any JobThread) {
    let (jobs, writes) = state.withLock { $0.pipeline.endFlushing() }
    for job in jobs { thread.add { self.perform(job) } }
    if writes || jobs.isEmpty && isCompactionDue { thread.add { self.writePending() } }
  }

  /// Schedules a flush for when the interval has passed, unless one is scheduled already.
  private func flushLater() {
    guard case .atMostEvery(let interval) = flushing.moment else { return }
    let thread = state.withLock { $0.pipeline.scheduleFlush() ? $0.thread : nil }
    thread?.add(after: interval) { self.flushLate() }
  }

  private func flushLate() {
    state.withLock { $0.pipeline.beginDelayedFlush() }
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
    let endsUse = if case .poisoned = failure { true } else { false }
    let (failed, isPoisoned, lock) = state.withLock { state in
      let failed = state.pipeline.fail(group, isPoisoned: endsUse)
      for submission in failed.reversed() { submission.rollBack(&state.table) }
      // If a closing has begun in between, it closes the file itself.
      guard endsUse, case .open = state.phase else {
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
    if endsUse, let thread { endFlushing(thread) }
  }
}

extension JSONFileCore.State {
  /// Takes note of changes that were written, and commits them if they wait for no flush.
  fileprivate mutating func wrote(
    _ changes: [Submission],
    _ moment: JSONFileStore.Flushing.Moment
  ) -> WritePipeline<Submission, JSONFileCore.PostponedJob>.AfterWriting {
    let next = pipeline.wrote(changes, mustFlush: moment == .eachBatch)
    if next == .commit { for submission in changes { submission.commit(to: &table) } }
    return next
  }

  /// Commits the changes of a flush that has ended.
  fileprivate mutating func endFlush()
    -> WritePipeline<Submission, JSONFileCore.PostponedJob>.FlushEnd
  {
    let end = pipeline.endFlush()
    for submission in end.flushed { submission.commit(to: &table) }
    return end
  }
}
