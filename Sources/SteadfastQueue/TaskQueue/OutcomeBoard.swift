import Synchronization

/// Where those who hold an enqueued task learn how it ended.
///
/// What is known of a task lies here for as long as somebody holds it. Most are enqueued and let go
/// at once: that costs an entry, and a cell to count the holder by.
final class OutcomeBoard: Sendable {
  private struct Entry: Sendable {
    /// How many cells of the task there are.
    var holders = 0
    var outcome: TaskOutcome?
    var value: (any Sendable)?
    var progress = OutcomeCell.Progress()
    /// Made for the first one that waits.
    var waiters: Waiters<TaskOutcome>?
    /// Made for the first one that waits.
    var progressWaiters: Waiters<Void>?
  }

  private let entries = Mutex<[TaskID: Entry]>([:])

  /// A cell of a task: what happens to the task is remembered while there is one.
  func cell(of id: TaskID) -> OutcomeCell {
    entries.withLock { $0[id, default: Entry()].holders += 1 }
    return OutcomeCell(id: id, board: self)
  }

  func resolve(_ id: TaskID, _ outcome: TaskOutcome, value: (any Sendable)? = nil) {
    let old = change(id) { entry in
      entry.outcome = outcome
      entry.value = value
      switch outcome {
      case .succeeded: entry.progress = entry.progress.next(1)
      case .abandoned: entry.progress = entry.progress.undone
      case .cancelled: break
      }
    }
    old?.waiters?.resumeAll(with: .success(outcome))
    old?.progressWaiters?.resumeAll(with: .success(()))
  }

  func report(_ fraction: Double, of id: TaskID) {
    let old = change(id) { $0.progress = $0.progress.next(fraction) }
    old?.progressWaiters?.resumeAll(with: .success(()))
  }

  /// A task was restarted: what is known of its end, if it had ended, is forgotten.
  func reopen(_ id: TaskID) {
    let old = change(id) { entry in
      guard entry.outcome != nil else { return }
      entry.outcome = nil
      entry.value = nil
      entry.progress = entry.progress.undone
    }
    old?.progressWaiters?.resumeAll(with: .success(()))
  }

  /// The tasks whose ends somebody may wait for.
  var awaited: [TaskID] {
    entries.withLock { entries in
      entries.filter { $0.value.outcome == nil && $0.value.waiters != nil }.map(\.key)
    }
  }

  /// How many tasks somebody holds.
  var count: Int { entries.withLock { $0.count } }

  /// Fails whoever waits for the end of a task.
  func fail(_ id: TaskID, _ error: any Error) {
    let old = change(id) { _ in }
    old?.waiters?.resumeAll(with: .failure(error))
  }

  /// Fails whoever still waits.
  func failWaiters(_ error: any Error) {
    for entry in entries.withLock({ Array($0.values) }) {
      entry.waiters?.resumeAll(with: .failure(error))
      entry.progressWaiters?.resumeAll(with: .success(()))
    }
  }

  /// Changes what is known of a task that somebody holds, and returns what was known before.
  ///
  /// A value that is let go thereby goes with the result, outside of the lock.
  private func change(_ id: TaskID, _ body: (inout Entry) -> Void) -> Entry? {
    entries.withLock { entries in
      guard !entries.isEmpty, let index = entries.index(forKey: id) else { return nil }
      let old = entries.values[index]
      body(&entries.values[index])
      return old
    }
  }
}

// MARK: - For cells

extension OutcomeBoard {
  fileprivate func letGo(of id: TaskID) {
    let last = entries.withLock { entries -> Entry? in
      guard let index = entries.index(forKey: id) else { return nil }
      entries.values[index].holders -= 1
      return entries.values[index].holders == 0 ? entries.remove(at: index).value : nil
    }
    // What a handler has returned goes outside of the lock: its end may hold another task.
    withExtendedLifetime(last) {}
  }

  fileprivate func outcome(of id: TaskID) -> TaskOutcome? {
    entries.withLock { $0[id]?.outcome }
  }

  fileprivate func value(of id: TaskID) -> (any Sendable)? { entries.withLock { $0[id]?.value } }

  fileprivate func progress(of id: TaskID) -> (OutcomeCell.Progress, hasEnded: Bool) {
    entries.withLock { entries in
      let entry = entries[id, default: Entry()]
      return (entry.progress, entry.outcome != nil)
    }
  }

  fileprivate func waiters(for id: TaskID) -> Waiters<TaskOutcome> {
    entries.withLock { entries in
      let waiters = entries[id]?.waiters ?? Waiters()
      entries[id]?.waiters = waiters
      return waiters
    }
  }

  fileprivate func progressWaiters(for id: TaskID) -> Waiters<Void> {
    entries.withLock { entries in
      let waiters = entries[id]?.progressWaiters ?? Waiters()
      entries[id]?.progressWaiters = waiters
      return waiters
    }
  }
}

/// A hold on one task: how far it is, and how it ended, once it has.
final class OutcomeCell: Sendable {
  /// The progress, with a number that grows each time it is told.
  struct Progress: Sendable {
    var fraction = 0.0
    var number = 0

    func next(_ fraction: Double) -> Progress {
      Progress(fraction: fraction, number: number + 1)
    }

    /// Nothing is done any more.
    var undone: Progress { fraction > 0 ? next(0) : self }
  }

  let id: TaskID
  private let board: OutcomeBoard

  fileprivate init(id: TaskID, board: OutcomeBoard) {
    self.id = id
    self.board = board
  }

  deinit { board.letGo(of: id) }

  var outcome: TaskOutcome? { board.outcome(of: id) }
  /// What the handler has returned, if the task has succeeded in this process.
  var value: (any Sendable)? { board.value(of: id) }

  /// Waits for the outcome, unless the check finds at the last moment that it will not come.
  func wait(unless check: () -> (any Error)?) async throws -> TaskOutcome {
    try await board.waiters(for: id).wait {
      if let outcome { return .success(outcome) }
      return check().map { .failure($0) }
    }
  }

  /// Waits until progress was told after this number of times; `nil` when the task or the queue has
  /// ended and nothing is left to tell, or the waiting is cancelled.
  func progress(after number: Int, hasQueueEnded: () -> Bool) async -> Progress? {
    while !Task.isCancelled {
      let (progress, hasEnded) = board.progress(of: id)
      if progress.number > number { return progress }
      if hasEnded || hasQueueEnded() { return nil }
      // Cancelled: the loop ends.
      try? await board.progressWaiters(for: id).wait {
        let (progress, hasEnded) = board.progress(of: id)
        let isOver = hasEnded || progress.number > number || hasQueueEnded()
        return isOver ? .success(()) : nil
      }
    }
    return nil
  }
}
