/// Where those who hold an enqueued task learn how it ended.
///
/// What is known of a task lies here for as long as somebody holds it. Most are enqueued and let go
/// at once: that costs an entry, and a cell to count the holder by. The tasks are spread over several
/// parts, so that those who enqueue on different threads seldom want the same lock.
final class OutcomeBoard: Sendable {
  private let parts = (0..<16).map { _ in Part() }

  private func part(of id: TaskID) -> Part {
    // The lower bits of what is drawn at random.
    parts[Int(truncatingIfNeeded: id.low) & (parts.count - 1)]
  }

  /// A cell of a task: what happens to the task is remembered while there is one.
  func cell(of id: TaskID) -> OutcomeCell { part(of: id).cell(of: id) }

  func resolve(_ id: TaskID, _ outcome: TaskOutcome, value: (any Sendable)? = nil) {
    let old = part(of: id).change(id) { known in
      known.outcome = outcome
      known.value = value
      switch outcome {
      case .succeeded: known.progress = known.progress.next(1)
      case .abandoned: known.progress = known.progress.undone
      case .cancelled: break
      }
    }
    old?.waiters?.resumeAll(with: .success(outcome))
    old?.progressWaiters?.resumeAll(with: .success(()))
  }

  func report(_ fraction: Double, of id: TaskID) {
    let old = part(of: id).change(id) { $0.progress = $0.progress.next(fraction) }
    old?.progressWaiters?.resumeAll(with: .success(()))
  }

  /// A task was restarted: what is known of its end, if it had ended, is forgotten.
  func reopen(_ id: TaskID) {
    let old = part(of: id).change(id) { known in
      guard known.outcome != nil else { return }
      known.outcome = nil
      known.value = nil
      known.progress = known.progress.undone
    }
    old?.progressWaiters?.resumeAll(with: .success(()))
  }

  /// The tasks whose ends somebody may wait for.
  var awaited: [TaskID] {
    parts.flatMap { part in
      part.all.compactMap { id, known in
        known.outcome == nil && known.waiters != nil ? id : nil
      }
    }
  }

  /// How many tasks somebody holds.
  var count: Int { parts.reduce(0) { $0 + $1.count } }

  /// Fails whoever waits for the end of a task.
  func fail(_ id: TaskID, _ error: any Error) {
    let old = part(of: id).change(id) { _ in }
    old?.waiters?.resumeAll(with: .failure(error))
  }

  /// Fails whoever still waits.
  func failWaiters(_ error: any Error) {
    for (_, known) in parts.flatMap(\.all) {
      known.waiters?.resumeAll(with: .failure(error))
      known.progressWaiters?.resumeAll(with: .success(()))
    }
  }
}
