import Synchronization

/// The error of a call whose lines would make the file larger than `maxFileSize`.
///
/// All sizes are in bytes.
struct FileFull: Error {
  /// The size of the call's lines.
  let needed: Int
  let limit: Int
  /// The size that the file has after all queued lines are written.
  let size: Int
  /// The approximate size of the file after a compaction.
  let compactSize: Int

  /// Whether a compaction would free enough space for the call, and at least a quarter of the file.
  ///
  /// Then the compaction rewrites at most three bytes for each byte that it frees.
  var shouldCompact: Bool {
    compactSize + needed <= limit && size - compactSize >= size / 4
  }
}

extension JSONFileCore {
  /// Compacts the file.
  ///
  /// If a compaction is already running, waits until it ends.
  ///
  /// - Returns: Whether the compaction succeeded.
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

  /// Resumes the callers that wait until a compaction ends.
  func resumeCompactionWaiters(with result: Result<Bool, any Error>) {
    let waiters = state.withLock { state in
      defer { state.compactionWaiters = [] }
      return state.compactionWaiters
    }
    for waiter in waiters { waiter.resume(with: result) }
  }

  /// Updates `state.size` from the size of the file and the queued lines, on the I/O thread.
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
  /// Returns the error if the lines of a submission don't fit into the file; `nil` if they fit.
  ///
  /// `table.byteCount` does not include the staged changes of the submission yet.
  func fileFullError(for submission: Submission, limit: Int?) -> FileFull? {
    guard let limit, submission.addsTasks, size + submission.byteCount > limit else { return nil }
    let excess = underestimate.bytesToAdd(to: table.byteCount + table.values.byteCount)
    return FileFull(
      needed: submission.byteCount,
      limit: limit,
      size: size,
      compactSize: table.compactSize + excess
    )
  }
}

extension TaskTable {
  /// Returns the lines of the staged changes that have an effect, completed with what the table
  /// decided about them.
  func linesToWrite(_ lines: [JournalBody], for staged: [StagedChange]) -> [JournalBody] {
    let arePlain = staged.allSatisfy { $0.isKept && decision(on: $0) == nil }
    if arePlain { return lines }
    return zip(lines, staged).filter { $1.isKept }.map { line, change in
      decision(on: change).map(line.adding) ?? line
    }
  }
}

extension Submission {
  /// The maximum size of the lines in the file, in bytes.
  var byteCount: Int { lines.reduce(0) { $0 + $1.byteCount } }

  /// Whether the changes add a task, change a task's payload, tags or metadata, or set a larger
  /// value.
  fileprivate var addsTasks: Bool {
    guard case .changes(let staged, _, _) = caller else { return false }
    return staged.contains { change in
      switch change.effect {
      case .insertion, .replacement: true
      case .change(.update(_, let update), _): update.addsBytes
      case .value(_, let grows): grows
      // A remembered value is always written: without it, the work that it records would be
      // repeated.
      case .memory: false
      case .change, .supersession, .broadChange, nil: false
      }
    }
  }
}

extension TaskUpdate {
  /// Whether the update changes a task's payload, tags or metadata, which may become larger.
  var addsBytes: Bool { payload != nil || tags != nil || metadata != nil }
}

// A compaction runs on the I/O thread, in steps. Other jobs run between the steps.
extension JSONFileCore {
  private enum Start {
    case no
    /// The compaction starts after the current flush.
    ///
    /// Only then is everything that was written also committed.
    case later
    case now(
      TaskTable.Snapshot,
      claimed: Set<TaskID>,
      any JobThread
    )
  }

  /// Starts a compaction, if the size of the file requires it or a caller waits for it.
  ///
  /// - Returns: Whether lines may be written now; `false` if they must wait until the current flush
  ///   ends, because a compaction starts then.
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
  /// No call throws the error. So it is written as a warning, unless the previous compaction failed
  /// for the same reason.
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

  /// Returns whether a compaction must start after the current flush.
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
        // Many tasks may have been removed since the file was compacted or opened.
        compactSize: min(file.compactSize, table.compactSize),
        records: Int(file.journal.nextSequence),
        liveRecords: table.liveRecordCount
      )
  }

  /// Performs a step of the compaction, and schedules the next step after the jobs that are
  /// waiting.
  ///
  /// No other job runs during the step, but a flush may. The flush must not wait for the step, so
  /// `file` is not locked during the step.
  private func performCompactionStep() {
    // The compaction is moved out of `file`, so that its copy of the tasks has only one reference,
    // and is changed in place.
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

  /// Closes the old file after a compaction, while other jobs continue.
  ///
  /// The file no longer has a name, so closing it makes the system free its space. For a large
  /// file, this takes longer than many flushes.
  private func closeInBackground(_ journal: Journal) {
    guard let thread = state.withLock({ $0.thread }) else { return journal.abandon() }
    thread.performBesideOtherJobs { journal.abandon() }
  }
}

extension JSONFileCore.State {
  /// The tasks that were leased, but whose line for the start of the attempt was not written yet.
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
  /// The number of tasks whose insertion is stored.
  ///
  /// O(1).
  var taskCount: Int { stateCounts.total }

  /// The number of lines that the file would have after a compaction.
  ///
  /// These are the header, the line that records the compaction, one for each task, one more for
  /// each running task, one for each value, and one for each value that a task remembers.
  ///
  /// O(1).
  var liveRecordCount: Int {
    2 + taskCount + stateCounts[.running] + values.count + memoryCount
  }

  /// The approximate size that the file would have after a compaction, in bytes.
  ///
  /// It includes 512 bytes for the header and the line that records the compaction.
  ///
  /// O(1).
  var compactSize: Int { byteCount + values.byteCount + 512 }
}
