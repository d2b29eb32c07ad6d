import SteadfastQueue

/// What comes after what: the promises H6, H7 and H8.
extension HistoryCheck {
  private struct OrderKey: Hashable {
    let queue: [UInt8]
    let key: [UInt8]

    init?(_ task: HistoryTask?) {
      guard let task, let key = task.orderKey else { return nil }
      queue = Array((task.queue ?? "").utf8)
      self.key = Array(key.utf8)
    }
  }

  /// H6 and H7: tasks with one order key are performed one after another, in their order.
  mutating func checkKeys() {
    var keys: [OrderKey: [TaskLife]] = [:]
    for life in tasks {
      guard let key = OrderKey(life.description) else { continue }
      keys[key, default: []].append(life)
    }
    for lives in keys.values {
      checkOrder(lives)
      checkRunners(lives)
    }
  }

  private mutating func checkOrder(_ lives: [TaskLife]) {
    for life in lives {
      guard let claim = life.claims.first else { continue }
      for earlier in lives
      where isInserted(earlier, before: life) && !earlier.mayHaveEnded(by: claim.answered)
        && !mayHaveEndedAlong(earlier)
      {
        report(
          .orderOfKeys,
          "a task was handed out before an earlier one with its order key had ended",
          [earlier.id, life.id],
          [earlier.insertions.first?.asked, life.insertions.first?.asked, claim.answered]
            + [earlier.ends.first?.asked]
        )
      }
    }
  }

  /// Whether a task is certain to have been stored before another one.
  private func isInserted(_ life: TaskLife, before other: TaskLife) -> Bool {
    // What was sent twice may have been stored by either.
    guard life.id != other.id, life.insertions.count == 1, let insertion = life.insertions.first,
      insertion.isDone
    else { return false }
    return other.insertions.allSatisfy { next in
      insertion.isCertainlyBefore(next.asked)
        || isSameCall(insertion, next) && insertion.index < next.index
    }
  }

  private func isSameCall(_ step: HistoryStep, _ other: HistoryStep) -> Bool {
    step.asked.source == other.asked.source && step.asked.line == other.asked.line
  }

  /// H8: a task is handed out after those that it waits for.
  mutating func checkWaitingTasks() {
    for life in tasks where !life.claims.isEmpty {
      let awaited = awaited(by: life)
      for claim in life.claims {
        for other in awaited
        where other.insertions.contains(where: { $0.isDone && $0.isCertainlyBefore(claim.asked) })
          && !other.mayHaveEnded(by: claim.answered) && !mayHaveEndedAlong(other)
        {
          report(
            .waitingTasksAreLast,
            "a task was handed out before one had ended that it waits for",
            [other.id, life.id],
            [other.insertions.first?.asked, claim.asked, claim.answered, other.ends.first?.asked]
          )
        }
      }
    }
  }
}
