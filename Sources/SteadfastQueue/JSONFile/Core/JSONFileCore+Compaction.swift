import Synchronization

// Compaction happens on the thread too, in steps between which other work is done.
extension JSONFileCore {
  private enum Start {
    case no
    /// It begins when nothing is being flushed: what is written then is committed, too.
    case later
    case now(tasks: Slab<TaskTable.Entry>, claimed: Set<TaskID>, any JobThread)
  }

  /// Begins to write the file anew if most of it is dead, or if somebody waits for that.
  ///
  /// Whether other work goes on; else it does so when nothing is being flushed.
  @discardableResult
  func compactIfDue() -> Bool {
    let (goesOn, failure) = file.withLock { file -> (Bool, Compaction.Failure?) in
      guard let open = file, open.compaction == nil else { return (true, nil) }
      switch state.withLock({ start(of: open, &$0) }) {
      case .no: return (true, nil)
      case .later: return (false, nil)
      case .now(let tasks, let claimed, let thread):
        do throws(Compaction.Failure) {
          file?.compaction = try Compaction(
            of: open.journal,
            tasks: tasks,
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

  /// A compaction has failed, and nothing has changed: the file goes on growing, which no call tells.
  private func putCompactionOff(_ error: any Error) {
    let (date, reason) = (date(), errors.reason(of: error))
    let news = file.withLock { file -> JSONFileStatistics.FailedCompaction? in
      guard let size = file?.journal.size else { return nil }
      let failure = JSONFileStatistics.FailedCompaction(
        date: date,
        reason: reason,
        nextSize: 2 * size
      )
      return file?.putCompactionOff(failure) == true ? failure : nil
    }
    if let news { announce(errors.failedCompaction(news)) }
  }

  private func start(of file: OpenFile, _ state: inout State) -> Start {
    guard isOpen(state), !state.compactionWaiters.isEmpty || isDue(file, state.table),
      let thread = state.thread
    else { return .no }
    if state.postponeWhileFlushing({ self.writePending() }) { return .later }
    // Not the whole table: what changes while it is held twice is copied.
    return .now(tasks: state.table.entries, claimed: state.claimedAndUnwritten, thread)
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
    file.journal.size >= file.postponedSize
      && compactionPolicy.isDue(
        size: file.journal.size,
        compactSize: file.compactSize,
        records: Int(file.journal.nextSequence),
        liveRecords: table.liveRecordCount
      )
  }

  /// Does a step of a compaction, and leaves the next one for when other work was done.
  ///
  /// It has the turn, so nobody writes; but flushes go on, which must not wait for it.
  private func compact() {
    // The copy of the tasks must not be kept alive in two places.
    guard let journal = file.withLock({ $0?.journal }),
      var compaction = file.withLock({ $0?.compaction.take() })
    else { return }
    do throws(Compaction.Failure) {
      switch try compaction.advance(journal, at: date()) {
      case .unfinished:
        file.withLock { $0?.compaction = compaction }
        state.withLock { $0.thread }?.add { self.compact() }
      case .finished(let replacement):
        file.withLock { $0?.replaceJournal(with: replacement) }
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

  /// Gives a file up that has no name any more, beside other work: the system frees what it took,
  /// and needs longer for a large one than many flushes take.
  private func giveUp(_ journal: Journal) {
    guard let thread = state.withLock({ $0.thread }) else { return journal.abandon() }
    thread.handOn { journal.abandon() }
  }
}

extension JSONFileCore.State {
  /// Tasks that are leased though the file does not say so yet.
  var claimedAndUnwritten: Set<TaskID> {
    Set(
      pending.flatMap { submission -> [TaskID] in
        guard case .claim(let claim, _) = submission.caller else { return [] }
        return claim.tasks.map(\.record.id)
      }
    )
  }
}

extension TaskTable {
  /// How many tasks there are whose insertion is committed.
  ///
  /// O(1).
  var taskCount: Int { stateCounts.total }

  /// How many lines a file has that says what there is: the first and the last, one for each task,
  /// and one more for each that is performed.
  ///
  /// O(1).
  var liveRecordCount: Int { 2 + taskCount + stateCounts[.running] }

  /// About how many bytes a file takes that says what there is: its lines, and the first and last
  /// ones.
  ///
  /// O(1).
  var compactSize: Int { byteCount + 512 }
}
