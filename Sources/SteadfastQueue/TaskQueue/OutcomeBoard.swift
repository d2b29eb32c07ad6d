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

  func resolve(_ id: TaskID, _ outcome: TaskOutcome) {
    let cell = cells.withLock { $0[id]?.value }
    cell?.resolve(outcome)
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

/// How one task ended, once it has.
final class OutcomeCell: Sendable {
  let id: TaskID
  private let state = Mutex<TaskOutcome?>(nil)
  private let waiters = Waiters<TaskOutcome>()
  private let board: OutcomeBoard

  fileprivate init(id: TaskID, board: OutcomeBoard) {
    self.id = id
    self.board = board
  }

  deinit { board.forget(id) }

  var outcome: TaskOutcome? { state.withLock { $0 } }

  fileprivate func resolve(_ outcome: TaskOutcome) {
    state.withLock { $0 = outcome }
    waiters.resumeAll(with: .success(outcome))
  }

  fileprivate func failWaiters(_ error: any Error) { waiters.resumeAll(with: .failure(error)) }

  /// Waits for the outcome, unless the check finds at the last moment that it will not come.
  func wait(unless check: () -> (any Error)?) async throws -> TaskOutcome {
    try await waiters.wait {
      if let outcome { return .success(outcome) }
      return check().map { .failure($0) }
    }
  }
}
