import Synchronization

/// Where those who hold an enqueued task learn how it ended.
final class OutcomeBoard: Sendable {
  private struct WeakCell { weak var value: OutcomeCell? }

  private let cells = Mutex<[TaskID: WeakCell]>([:])

  /// The cell of a task, for as long as somebody holds it.
  func cell(of id: TaskID) -> OutcomeCell {
    cells.withLock { cells in
      if let cell = cells[id]?.value { return cell }
      let cell = OutcomeCell(id: id, board: self)
      cells[id] = WeakCell(value: cell)
      return cell
    }
  }

  func resolve(_ id: TaskID, _ outcome: TaskOutcome, value: (any Sendable)? = nil) {
    let cell = cells.withLock { $0[id]?.value }
    cell?.resolve(outcome, value: value)
  }

  func report(_ fraction: Double, of id: TaskID) {
    let cell = cells.withLock { $0[id]?.value }
    cell?.report(fraction)
  }

  /// A task that had ended was restarted.
  func reopen(_ id: TaskID) {
    let cell = cells.withLock { $0[id]?.value }
    cell?.reopen()
  }

  /// How many tasks somebody holds.
  var count: Int { cells.withLock { $0.count } }

  /// Fails whoever still waits.
  func failWaiters(_ error: any Error) {
    for cell in cells.withLock({ $0.values.compactMap(\.value) }) { cell.failWaiters(error) }
  }

  fileprivate func forget(_ id: TaskID) {
    // A new cell may have been made for the task since this one's last reference went. If this is
    // the last reference to it, it goes outside of the lock, which its end takes.
    let present = cells.withLock { cells in
      let present = cells[id]?.value
      if present == nil { cells[id] = nil }
      return present
    }
    withExtendedLifetime(present) {}
  }
}

/// How far one task is, and how it ended, once it has.
final class OutcomeCell: Sendable {
  /// The progress, with a number that grows each time it is told.
  struct Progress {
    var fraction = 0.0
    var number = 0

    mutating func tell(_ fraction: Double) {
      self.fraction = fraction
      number += 1
    }

    /// Nothing is done any more.
    mutating func goBack() { if fraction > 0 { tell(0) } }
  }

  private struct State {
    var outcome: TaskOutcome?
    var value: (any Sendable)?
    var progress = Progress()
  }

  let id: TaskID
  private let state = Mutex(State())
  private let waiters = Waiters<TaskOutcome>()
  private let progressWaiters = Waiters<Void>()
  private let board: OutcomeBoard

  fileprivate init(id: TaskID, board: OutcomeBoard) {
    self.id = id
    self.board = board
  }

  deinit { board.forget(id) }

  var outcome: TaskOutcome? { state.withLock { $0.outcome } }
  /// What the handler has returned, if the task has succeeded in this process.
  var value: (any Sendable)? { state.withLock { $0.value } }

  fileprivate func resolve(_ outcome: TaskOutcome, value: (any Sendable)?) {
    state.withLock { state in
      state.outcome = outcome
      state.value = value
      switch outcome {
      case .succeeded: state.progress.tell(1)
      case .abandoned: state.progress.goBack()
      case .cancelled: break
      }
    }
    waiters.resumeAll(with: .success(outcome))
    progressWaiters.resumeAll(with: .success(()))
  }

  fileprivate func report(_ fraction: Double) {
    state.withLock { $0.progress.tell(fraction) }
    progressWaiters.resumeAll(with: .success(()))
  }

  fileprivate func reopen() {
    state.withLock { state in
      state.outcome = nil
      state.value = nil
      state.progress.goBack()
    }
    progressWaiters.resumeAll(with: .success(()))
  }

  fileprivate func failWaiters(_ error: any Error) {
    waiters.resumeAll(with: .failure(error))
    progressWaiters.resumeAll(with: .success(()))
  }

  /// Waits for the outcome, unless the check finds at the last moment that it will not come.
  func wait(unless check: () -> (any Error)?) async throws -> TaskOutcome {
    try await waiters.wait {
      if let outcome { return .success(outcome) }
      return check().map { .failure($0) }
    }
  }

  /// Waits until progress was told after this number of times; `nil` when the task or the queue has
  /// ended and nothing is left to tell, or the waiting is cancelled.
  func progress(after number: Int, hasQueueEnded: () -> Bool) async -> Progress? {
    while !Task.isCancelled {
      let (progress, hasEnded) = state.withLock { ($0.progress, $0.outcome != nil) }
      if progress.number > number { return progress }
      if hasEnded || hasQueueEnded() { return nil }
      // Cancelled: the loop ends.
      try? await progressWaiters.wait {
        let isOver = state.withLock { $0.outcome != nil || $0.progress.number > number }
        return isOver || hasQueueEnded() ? .success(()) : nil
      }
    }
    return nil
  }
}
