/// A reference to one task: its progress, and its outcome once it has ended.
final class OutcomeHandle: Sendable {
  /// The progress of a task, with a number that grows with each report.
  struct Progress: Sendable {
    var fraction = 0.0
    var number = 0

    func next(_ fraction: Double) -> Progress {
      Progress(fraction: fraction, number: number + 1)
    }

    /// The progress after the work is undone: 0.
    var undone: Progress { fraction > 0 ? next(0) : self }
  }

  let id: TaskID
  /// Where the registry keeps what is known about the task, as long as the task has a handle.
  private let slot: Int
  private let part: OutcomeRegistry.Shard

  init(id: TaskID, slot: Int, part: OutcomeRegistry.Shard) {
    self.id = id
    self.slot = slot
    self.part = part
  }

  deinit { part.letGo(of: slot) }

  var outcome: TaskOutcome? { part.outcome(at: slot) }
  /// Whether another task has superseded it, whose outcome will be that of both.
  var isSuperseded: Bool { part.isSuperseded(at: slot) }
  /// The value that the handler returned, if the task has succeeded in this process.
  var value: (any Sendable)? { part.value(at: slot) }

  /// Waits for the outcome, unless `check` finds at the last moment that it will not come.
  func wait(unless check: () -> (any Error)?) async throws -> TaskOutcome {
    try await part.waiters(at: slot).wait {
      if let outcome { return .success(outcome) }
      return check().map { .failure($0) }
    }
  }

  /// Waits for a report of progress after the one with this number.
  ///
  /// - Returns: The progress; `nil` if the task or the queue has ended and nothing is left to
  ///   report, if the wait fails because the task is not there any more, or if it is cancelled.
  func progress(after number: Int, hasQueueEnded: () -> Bool) async -> Progress? {
    while !Task.isCancelled {
      let (progress, hasEnded) = part.progress(at: slot)
      if progress.number > number { return progress }
      if hasEnded || hasQueueEnded() { return nil }
      do {
        try await part.progressWaiters(at: slot).wait {
          let (progress, hasEnded) = part.progress(at: slot)
          let isOver = hasEnded || progress.number > number || hasQueueEnded()
          return isOver ? .success(()) : nil
        }
      } catch {
        return nil
      }
    }
    return nil
  }
}
