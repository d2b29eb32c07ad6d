import Synchronization

/// Where those who hold an enqueued task learn how it ended.
///
/// What is known of a task lies here for as long as somebody holds it. Most are enqueued and let go
/// at once: that costs an entry, and a cell to count the holder by.
final class OutcomeBoard: Sendable {
  fileprivate struct Entry: Sendable {
    var id: TaskID
    /// How many cells of the task there are.
    var holders = 0
    var outcome: TaskOutcome?
    var value: (any Sendable)?
    var progress = OutcomeCell.Progress()
    /// Made for the first one that waits.
    var waiters: Waiters<TaskOutcome>?
    /// Made for the first one that waits.
    var progressWaiters: Waiters<Void>?

    /// What a free slot holds.
    static let none = Entry(id: TaskID(high: 0, low: 0))
  }

  fileprivate struct State: Sendable {
    /// What is known of a task, where its cells find it too.
    var entries = Slab(filler: Entry.none)
    var slots = SlotIndex()

    func slot(of id: TaskID) -> Int? { slots.slot(of: id) { entries[$0].id == id } }
  }

  private let state = Mutex(State())

  /// A cell of a task: what happens to the task is remembered while there is one.
  func cell(of id: TaskID) -> OutcomeCell {
    let slot = state.withLock { state in
      let slot = state.slot(of: id) ?? state.addEntry(of: id)
      state.entries[slot].holders += 1
      return slot
    }
    return OutcomeCell(id: id, slot: slot, board: self)
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
    state.withLock { state in
      state.slots.all.compactMap { slot in
        let entry = state.entries[slot]
        return entry.outcome == nil && entry.waiters != nil ? entry.id : nil
      }
    }
  }

  /// How many tasks somebody holds.
  var count: Int { state.withLock { $0.slots.count } }

  /// Fails whoever waits for the end of a task.
  func fail(_ id: TaskID, _ error: any Error) {
    let old = change(id) { _ in }
    old?.waiters?.resumeAll(with: .failure(error))
  }

  /// Fails whoever still waits.
  func failWaiters(_ error: any Error) {
    for entry in state.withLock({ state in state.slots.all.map { state.entries[$0] } }) {
      entry.waiters?.resumeAll(with: .failure(error))
      entry.progressWaiters?.resumeAll(with: .success(()))
    }
  }

  /// Changes what is known of a task that somebody holds, and returns what was known before.
  ///
  /// A value that is let go thereby goes with the result, outside of the lock.
  private func change(_ id: TaskID, _ body: (inout Entry) -> Void) -> Entry? {
    state.withLock { state in
      guard state.slots.count > 0, let slot = state.slot(of: id) else { return nil }
      let old = state.entries[slot]
      body(&state.entries[slot])
      return old
    }
  }
}

// MARK: - For cells

extension OutcomeBoard {
  fileprivate func letGo(of slot: Int) {
    let last = state.withLock { state -> Entry? in
      state.entries[slot].holders -= 1
      return state.entries[slot].holders == 0 ? state.removeEntry(at: slot) : nil
    }
    // What a handler has returned goes outside of the lock: its end may hold another task.
    withExtendedLifetime(last) {}
  }

  fileprivate func outcome(at slot: Int) -> TaskOutcome? {
    state.withLock { $0.entries[slot].outcome }
  }

  fileprivate func value(at slot: Int) -> (any Sendable)? {
    state.withLock { $0.entries[slot].value }
  }

  fileprivate func progress(at slot: Int) -> (OutcomeCell.Progress, hasEnded: Bool) {
    state.withLock { ($0.entries[slot].progress, $0.entries[slot].outcome != nil) }
  }

  fileprivate func waiters(at slot: Int) -> Waiters<TaskOutcome> {
    state.withLock { state in
      let waiters = state.entries[slot].waiters ?? Waiters()
      state.entries[slot].waiters = waiters
      return waiters
    }
  }

  fileprivate func progressWaiters(at slot: Int) -> Waiters<Void> {
    state.withLock { state in
      let waiters = state.entries[slot].progressWaiters ?? Waiters()
      state.entries[slot].progressWaiters = waiters
      return waiters
    }
  }
}

extension OutcomeBoard.State {
  fileprivate mutating func addEntry(of id: TaskID) -> Int {
    let slot = entries.insert(OutcomeBoard.Entry(id: id))
    slots.insert(slot, for: id)
    return slot
  }

  fileprivate mutating func removeEntry(at slot: Int) -> OutcomeBoard.Entry {
    let entry = entries[slot]
    slots.remove(slot, of: entry.id)
    entries.remove(slot)
    return entry
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
  /// Where the board keeps what is known of the task, as long as there is a cell.
  private let slot: Int
  private let board: OutcomeBoard

  fileprivate init(id: TaskID, slot: Int, board: OutcomeBoard) {
    self.id = id
    self.slot = slot
    self.board = board
  }

  deinit { board.letGo(of: slot) }

  var outcome: TaskOutcome? { board.outcome(at: slot) }
  /// What the handler has returned, if the task has succeeded in this process.
  var value: (any Sendable)? { board.value(at: slot) }

  /// Waits for the outcome, unless the check finds at the last moment that it will not come.
  func wait(unless check: () -> (any Error)?) async throws -> TaskOutcome {
    try await board.waiters(at: slot).wait {
      if let outcome { return .success(outcome) }
      return check().map { .failure($0) }
    }
  }

  /// Waits until progress was told after this number of times; `nil` when the task or the queue has
  /// ended and nothing is left to tell, or the waiting is cancelled.
  func progress(after number: Int, hasQueueEnded: () -> Bool) async -> Progress? {
    while !Task.isCancelled {
      let (progress, hasEnded) = board.progress(at: slot)
      if progress.number > number { return progress }
      if hasEnded || hasQueueEnded() { return nil }
      // Cancelled: the loop ends.
      try? await board.progressWaiters(at: slot).wait {
        let (progress, hasEnded) = board.progress(at: slot)
        let isOver = hasEnded || progress.number > number || hasQueueEnded()
        return isOver ? .success(()) : nil
      }
    }
    return nil
  }
}
