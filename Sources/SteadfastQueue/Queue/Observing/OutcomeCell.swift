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
  /// Where what is known of the task is kept, as long as there is a cell.
  private let slot: Int
  private let part: OutcomeBoard.Part

  init(id: TaskID, slot: Int, part: OutcomeBoard.Part) {
    self.id = id
    self.slot = slot
    self.part = part
  }

  deinit { part.letGo(of: slot) }

  var outcome: TaskOutcome? { part.outcome(at: slot) }
  /// What the handler has returned, if the task has succeeded in this process.
  var value: (any Sendable)? { part.value(at: slot) }

  /// Waits for the outcome, unless the check finds at the last moment that it will not come.
  func wait(unless check: () -> (any Error)?) async throws -> TaskOutcome {
    try await part.waiters(at: slot).wait {
      if let outcome { return .success(outcome) }
      return check().map { .failure($0) }
    }
  }

  /// Waits until progress was told after this number of times; `nil` when the task or the queue has
  /// ended and nothing is left to tell, or the waiting is cancelled.
  func progress(after number: Int, hasQueueEnded: () -> Bool) async -> Progress? {
    while !Task.isCancelled {
      let (progress, hasEnded) = part.progress(at: slot)
      if progress.number > number { return progress }
      if hasEnded || hasQueueEnded() { return nil }
      // Cancelled: the loop ends.
      try? await part.progressWaiters(at: slot).wait {
        let (progress, hasEnded) = part.progress(at: slot)
        let isOver = hasEnded || progress.number > number || hasQueueEnded()
        return isOver ? .success(()) : nil
      }
    }
    return nil
  }
}
