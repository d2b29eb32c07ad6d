import Synchronization

// Compaction runs on the I/O thread too, in steps. Other work is done between the steps.
extension JSONFileCore {
  private enum Start {
    case no
    /// The compaction begins when nothing is being flushed.
    ///
    /// Everything that is written by then is committed, too.
    case later
    case now(
      TaskTable.Snapshot,
      claimed: Set<TaskID>,
      any JobThread
    )
  }

  /// Begins a compaction if most of the file is no longer needed, or if a caller waits for one.
  ///
  /// - Returns: Whether other work goes on now. If not, it goes on when nothing is being flushed.
  @discardableResult
  func compactIfDue() -> Bool {
    let (goesOn, failure) = file.withLock { file -> (Bool, Compaction.Failure?) in
      guard let open = file, open.compaction == nil else { return (true, nil) }
      switch state.withLock({ start(of: open, &$0) }) {
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
          thread.add { self.compact() }
          return (true, nil)
        } catch {
          return (true, error)
        }
      }
    }
    if let failure {
      putCompactionOff(failure.cause)
      tellCompactionWaiters(.success(false))
    }
    return goesOn
  }

  /// Postpones the next compaction after one has failed.
  ///
  /// Nothing has changed, but the file keeps growing. No call reports that, so a new reason is
  /// announced.
  private func putCompactionOff(_ error: any Error) {
    let (date, reason) = (date(), errors.reason(of: error))
    let news = file.withLock { file -> JSONFileStatistics.FailedCompaction? in
      guard let size = file?.journal.size else { return nil }
      let failure = JSONFileStatistics.FailedCompaction(
        date: date,
        reason: reason,
        nextSize: 2 * size
      )
      let compactSize = state.withLock { $0.table.compactSize }
      return file?.putCompactionOff(failure, compactSize: compactSize) == true ? failure : nil
    }
    if let news { announce(errors.failedCompaction(news)) }
  }

  private func start(of file: OpenFile, _ state: inout State) -> Start {
    guard isOpen(state), !state.compactionWaiters.isEmpty || isDue(file, state.table),
      let thread = state.thread
    else { return .no }
    if state.pipeline.postponeWhileFlushing(.write) { return .later }
    return .now(state.table.snapshot, claimed: state.claimedAndUnwritten, thread)
  }

  var isCompactionDue: Bool {
    file.withLock { file in
      guard let file, file.compaction == nil else { return false }
      return state.withLock { isOpen($0) && isDue(file, $0.table) }
    }
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

  /// Does a step of a compaction, and schedules the next one behind other work.
  ///
  /// This job has the turn, so nothing else is written. Flushes go on at the same time, and must
  /// not wait for it.
  private func compact() {
    // The copy of the tasks must have one owner only, so the compaction is taken out of `file`.
    guard let journal = file.withLock({ $0?.journal }),
      var compaction = file.withLock({ $0?.compaction.take() })
    else { return }
    do throws(Compaction.Failure) {
      switch try compaction.advance(journal, at: date()) {
      case .unfinished:
        file.withLock { $0?.compaction = compaction }
        state.withLock { $0.thread }?.add { self.compact() }
      case .finished(var replacement):
        replacement.reservation = reservation
        file.withLock { $0?.replaceJournal(with: replacement) }
        state.withLock { $0.underestimate = compaction.underestimate }
        endCompaction(wasFinished: true)
        giveUp(journal)
      }
    } catch {
      switch error {
      case .refused(let cause):
        putCompactionOff(cause)
        endCompaction(wasFinished: false)
      case .poisoned(let error):
        fail([], .poisoned(error))
      }
    }
  }

  private func endCompaction(wasFinished: Bool) {
    noteSize()
    tellCompactionWaiters(.success(wasFinished))
  }

  /// Closes a file that has no name any more, while other work goes on.
  ///
  /// The system then frees the file's space. For a large file this takes longer than many flushes.
  private func giveUp(_ journal: Journal) {
    guard let thread = state.withLock({ $0.thread }) else { return journal.abandon() }
    thread.yieldTurn { journal.abandon() }
  }
}

extension JSONFileCore.State {
  /// The tasks that are leased, but whose beginning is not in the file yet.
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

  /// The number of lines that a compacted file has.
  ///
  /// These are the first and the last line, one for each task, one more for each running task, one
  /// for each value, and one for each that a task remembers.
  ///
  /// O(1).
  var liveRecordCount: Int {
    2 + taskCount + stateCounts[.running] + values.count + memoryCount
  }

  /// About how many bytes a compacted file has.
  ///
  /// These are the lines of the tasks and of the values, and the first and last lines.
  ///
  /// O(1).
  var compactSize: Int { byteCount + values.byteCount + 512 }
}
