import Synchronization

// What happens on the thread, one thing after another: all that touches the file.
extension JSONFileCore {
  func openFile() throws {
    if try state.withLock({ state in try isOpen(state.phase) }) { return }
    let (lock, storage, opened) = try errors.translating {
      let (lock, storage) = try opener()
      return (lock, storage, try Journal.open(storage))
    }
    journal.withLock { $0 = opened.journal }
    state.withLock { state in
      state.lock = lock
      state.storage = storage
      state.table = opened.table
      // A closing that has begun meanwhile goes on.
      if case .unopened = state.phase { state.phase = .open }
    }
  }

  func closeFile() {
    // Nothing is added any more.
    writePending()
    let result = Result {
      try errors.translating {
        try journal.withLock { journal in
          defer { journal = nil }
          guard let storage = state.withLock({ $0.deletesFile ? $0.storage : nil }) else {
            try journal?.close()
            return
          }
          journal?.abandon()
          try storage.remove(.journal)
          try storage.synchronizeFolder()
        }
      }
    }
    let (lock, closers) = state.withLock { state in
      defer {
        state.phase = .closed
        state.lock = nil
        state.storage = nil
        state.thread = nil
        state.closers = []
      }
      return (state.lock, state.closers)
    }
    lock?.release()
    for closer in closers { closer.resume(with: result) }
  }

  func writePending() {
    while let group = takePending() { write(group) }
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
      try withJournal { journal throws(Journal.Failure) in
        try journal.append(group.map(\.lines))
      }
    } catch {
      return fail(group, error)
    }
    // A claim need only survive the process; what it leased is leased already.
    for claim in group where claim.isClaim { claim.succeed() }
    let changes = group.filter { !$0.isClaim }
    do throws(Journal.Failure) {
      if changes.contains(where: \.needsFlush) {
        try withJournal { journal throws(Journal.Failure) in try journal.synchronize() }
      }
    } catch {
      return fail(changes, error)
    }
    state.withLock { state in
      for submission in changes { submission.commit(to: &state.table) }
    }
    for submission in changes { submission.succeed() }
  }

  private func withJournal(
    _ body: (inout Journal) throws(Journal.Failure) -> Void
  ) throws(Journal.Failure) {
    try journal.withLock { journal throws(Journal.Failure) in
      guard var open = journal.take() else {
        preconditionFailure("lines were written to a closed file")
      }
      defer { journal = open }
      try body(&open)
    }
  }

  /// Takes everything back that is staged: what is pending may rest on what has failed.
  private func fail(_ group: [Submission], _ failure: Journal.Failure) {
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
      journal.withLock { journal in
        journal?.abandon()
        journal = nil
      }
      lock?.release()
    }
    for submission in failed { submission.fail(error) }
  }
}
