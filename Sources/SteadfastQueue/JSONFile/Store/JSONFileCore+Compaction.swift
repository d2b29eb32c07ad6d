import Synchronization

/// The error that lines that add tasks don't fit into the file.
///
/// All sizes are in bytes.
struct FileFull: Error {
  /// The size of the lines.
  let needed: Int
  let limit: Int
  /// The size of the file after every accepted change is written.
  let size: Int
  /// The approximate size that the file would have after a compaction.
  let compactSize: Int

  /// Whether a compaction would free enough space, and is worth its cost.
  ///
  /// It is worth its cost if it rewrites at most three bytes for each byte that it frees.
  var shouldCompact: Bool {
    compactSize + needed <= limit && size - compactSize >= size / 4
  }
}

extension JSONFileCore {
  /// Compacts the file, or waits for the present compaction.
  ///
  /// - Returns: Whether a compaction was finished.
  func compactNow() async throws -> Bool {
    try await waitForThread { continuation in
      let thread = Result {
        try state.withLock { state throws -> (any JobThread)? in
          guard try isOpen(state.phase) else { throw errors.closed }
          state.compactionWaiters.append(continuation)
          return state.thread
        }
      }
      switch thread {
      case .success(let thread): thread?.add { self.compactIfDue() }
      case .failure(let error): continuation.resume(throwing: error)
      }
    }
  }

  /// Resumes the callers that wait for a compaction, when it has ended or there is none.
  func resumeCompactionWaiters(with result: Result<Bool, any Error>) {
    let waiters = state.withLock { state in
      defer { state.compactionWaiters = [] }
      return state.compactionWaiters
    }
    for waiter in waiters { waiter.resume(with: result) }
  }

  /// Records the file's size, on the I/O thread.
  func recordFileSize() {
    guard options.maxFileSize != nil else { return }
    let size = file.withLock {
      $0.map { $0.journal.size + $0.journal.pendingInterruptionByteCount }
    }
    guard let size else { return }
    state.withLock { $0.size = $0.pipeline.pending.reduce(size) { $0 + $1.byteCount } }
  }
}

extension JSONFileCore.State {
  /// Returns the error if a submission does not fit, or `nil` if it does.
  ///
  /// The table's size does not include the submission's staged changes yet.
  func fileFullError(for submission: Submission, limit: Int?) -> FileFull? {
    guard let limit, submission.addsTasks, size + submission.byteCount > limit else { return nil }
    let excess = underestimate.excess(over: table.byteCount + table.values.byteCount)
    return FileFull(
      needed: submission.byteCount,
      limit: limit,
      size: size,
      compactSize: table.compactSize + excess
    )
  }
}

extension TaskTable {
  /// Returns the lines of the changes that are kept, with the decisions of the staging.
  func linesToWrite(_ lines: [JournalBody], for staged: [StagedChange]) -> [JournalBody] {
    let arePlain = staged.allSatisfy { $0.isKept && decision(on: $0) == nil }
    if arePlain { return lines }
    return zip(lines, staged).filter { $1.isKept }.map { line, change in
      decision(on: change).map(line.adding) ?? line
    }
  }
}

extension Submission {
  /// The maximum size of the lines, in bytes.
  var byteCount: Int { lines.reduce(0) { $0 + $1.byteCount } }

  /// Whether the changes add a task, change a task's payload or tags, or set a larger value.
  fileprivate var addsTasks: Bool {
    guard case .changes(let staged, _, _) = caller else { return false }
    return staged.contains { change in
      switch change.effect {
      case .insertion, .replacement: true
      case .change(.update(_, let update), _): update.addsBytes
      case .value(_, let grows): grows
      // The remembered work is done, and would be repeated if the value were not stored.
      case .memory: false
      case .change, .supersession, .broadChange, nil: false
      }
    }
  }
}

extension TaskUpdate {
  /// Whether the update changes a task's payload or tags, which may become larger.
  var addsBytes: Bool { payload != nil || tags != nil }
}

// Compaction runs on the I/O thread too, in steps. Other work is done between the steps.
extension JSONFileCore {
  private enum Start {
    case no
    /// The compaction starts when nothing is being flushed.
    ///
    /// Everything that is written by then is also committed.
    case later
    case now(
      TaskTable.Snapshot,
      claimed: Set<TaskID>,
      any JobThread
    )
  }

  /// Starts a compaction if most of the file is no longer needed, or if a caller waits for one.
  ///
  /// - Returns: Whether other work continues now. If not, it continues when nothing is being
  ///   flushed.
  @discardableResult
  func compactIfDue() -> Bool {
    let (canWriteNow, failure) = file.withLock { file -> (Bool, Compaction.Failure?) in
      guard let open = file, open.compaction == nil else { return (true, nil) }
      switch state.withLock({ decideStart(for: open, &$0) }) {
      case .no: return (true, nil)
      case .later: return (false, nil)
      case .now(let snapshot, let claimed, let thread):
        do throws(Compaction.Failure) {
          file?.compaction = try Compaction(
            of: open.journal,
            snapshot: snapshot,
            claimed: claimed,
            in: open.storage,
            compactionPolicy
          )
          thread.add { self.performCompactionStep() }
          return (true, nil)
        } catch {
          return (true, error)
        }
      }
    }
    if let failure {
      postponeCompaction(because: failure.cause)
      resumeCompactionWaiters(with: .success(false))
    }
    return canWriteNow
  }

  /// Postpones the next compaction after one has failed.
  ///
  /// Nothing has changed, but the file continues to grow. No call reports that, so a new reason is
  /// announced.
  private func postponeCompaction(because error: any Error) {
    let (date, reason) = (date(), errors.reason(of: error))
    let news = file.withLock { file -> JSONFileStatistics.FailedCompaction? in
      guard let size = file?.journal.size else { return nil }
      let failure = JSONFileStatistics.FailedCompaction(
        date: date,
        reason: reason,
        nextSize: 2 * size
      )
      let compactSize = state.withLock { $0.table.compactSize }
      return file?.postponeCompaction(failure, compactSize: compactSize) == true ? failure : nil
    }
    if let news { announce(errors.compactionFailedMessage(because: news)) }
  }

  private func decideStart(for file: OpenFile, _ state: inout State) -> Start {
    guard isOpen(state), !state.compactionWaiters.isEmpty || isDue(file, state.table),
      let thread = state.thread
    else { return .no }
    if state.pipeline.postponeIfFlushing(.write) { return .later }
    return .now(state.table.snapshot, claimed: state.claimedAndUnwritten, thread)
  }

  /// Returns whether a compaction must start when nothing is being flushed.
  func isCompactionDue(in file: OpenFile?, _ state: State) -> Bool {
    guard let file, file.compaction == nil else { return false }
    return isOpen(state) && isDue(file, state.table)
  }

  private func isOpen(_ state: State) -> Bool {
    if case .open = state.phase { true } else { false }
  }

  private func isDue(_ file: OpenFile, _ table: TaskTable) -> Bool {
    (file.journal.size >= file.postponedSize || table.compactSize <= file.postponedCompactSize)
      && compactionPolicy.isDue(
        size: file.journal.size,
        // Many tasks may have ended since the file was compacted or opened.
        compactSize: min(file.compactSize, table.compactSize),
        records: Int(file.journal.nextSequence),
        liveRecords: table.liveRecordCount
      )
  }

  /// Performs a step of a compaction, and schedules the next one behind other work.
  ///
  /// Nothing else is written during this job. Flushes may run at the same time, and must not wait
  /// for this job.
  private func performCompactionStep() {
    // The copy of the tasks must have only one owner, so the compaction is moved out of `file`.
    guard let journal = file.withLock({ $0?.journal }),
      var compaction = file.withLock({ $0?.compaction.take() })
    else { return }
    do throws(Compaction.Failure) {
      switch try compaction.advance(journal, at: date()) {
      case .unfinished:
        file.withLock { $0?.compaction = compaction }
        state.withLock { $0.thread }?.add { self.performCompactionStep() }
      case .finished(var replacement):
        replacement.reservation = reservation
        file.withLock { $0?.replaceJournal(with: replacement) }
        state.withLock { $0.underestimate = compaction.underestimate }
        endCompaction(wasFinished: true)
        closeInBackground(journal)
      }
    } catch {
      switch error {
      case .refused(let cause):
        postponeCompaction(because: cause)
        endCompaction(wasFinished: false)
      case .poisoned(let error):
        rollBackAndFail([], because: .poisoned(error))
      }
    }
  }

  private func endCompaction(wasFinished: Bool) {
    recordFileSize()
    resumeCompactionWaiters(with: .success(wasFinished))
  }

  /// Closes a file that no longer has a name, while other work continues.
  ///
  /// The system then frees the file's space. For a large file, this takes longer than many flushes.
  private func closeInBackground(_ journal: Journal) {
    guard let thread = state.withLock({ $0.thread }) else { return journal.abandon() }
    thread.performBesideOtherJobs { journal.abandon() }
  }
}

extension JSONFileCore.State {
  /// The leased tasks whose attempts have started, but are not recorded in the file yet.
  var claimedAndUnwritten: Set<TaskID> {
    Set(
      pipeline.pending.flatMap { submission -> [TaskID] in
        guard case .claim(let claim, _) = submission.caller else { return [] }
        return claim.tasks.map(\.record.id)
      }
    )
  }
}

extension TaskTable {
  /// The number of tasks whose insertion is committed.
  ///
  /// O(1).
  var taskCount: Int { stateCounts.total }

  /// The number of lines of a compacted file.
  ///
  /// These are the first and the last line, one for each task, one more for each running task, one
  /// for each value, and one for each value that a task remembers.
  ///
  /// O(1).
  var liveRecordCount: Int {
    2 + taskCount + stateCounts[.running] + values.count + memoryCount
  }

  /// The approximate size of a compacted file, in bytes.
  ///
  /// It includes the lines of the tasks and of the values, and the first and last lines.
  ///
  /// O(1).
  var compactSize: Int { byteCount + values.byteCount + 512 }
}
