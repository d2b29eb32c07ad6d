import SteadfastQueue

/// What happens within some time: the promises H9 and H10, and the rare paths.
extension HistoryCheck {
  /// An attempt, and the interval in which its start was counted.
  private struct Start {
    let task: TaskID
    let earliest: HistoryPlace
    let latest: HistoryPlace
  }

  /// H9: no more attempts begin within an interval than a limit allows.
  ///
  /// A start is counted after its task was asked for, and before its handler begins.
  mutating func checkLimits() {
    guard !expectations.limits.isEmpty else {
      return skip(.limitsHold, "no limit is expected")
    }
    for limit in expectations.limits {
      let starts = starts(under: limit).sorted { $0.earliest < $1.earliest }
      let interval = limit.interval.microseconds - tolerance
      for (number, first) in starts.enumerated() {
        let within = starts[number...]
          .prefix { $0.earliest.date < first.earliest.date + interval }
          .filter { $0.latest.date < first.earliest.date + interval }
        guard within.count > limit.count else { continue }
        report(
          .limitsHold,
          "\(within.count) attempts began within \(limit.interval), of at most \(limit.count)",
          within.map(\.task),
          within.flatMap { [$0.earliest, $0.latest] }
        )
        break
      }
    }
  }

  private func starts(under limit: History.Expectations.StartLimit) -> [Start] {
    tasks.flatMap { life in
      life.attempts.compactMap { attempt in
        guard let claim = life.claim(with: attempt.lease),
          limit.names?.contains(claim.grant.name) ?? true
        else { return nil }
        return Start(task: life.id, earliest: claim.asked, latest: attempt.began)
      }
    }
  }

  /// H10: once the faults have ended, everything ends within a bound.
  mutating func checkBound() {
    guard let bound = expectations.endsWithin else {
      return skip(.everythingEnds, "no bound is expected")
    }
    guard let calm = index.faultsEnd else {
      return skip(.everythingEnds, "no process has recorded the end of the faults")
    }
    let unfinished: Set<TaskState> = [.waiting, .running, .suspended]
    for life in tasks {
      let inserted = life.insertions.first(where: \.isDone)?.answered?.date ?? calm.date
      let latest = max(calm.date, inserted) + bound.microseconds
      if let place = index.remainingTasks, let state = life.remaining.flatMap(TaskState.init),
        unfinished.contains(state)
      {
        // If the run was over earlier than the bound, the task had its time all the same.
        report(
          .everythingEnds,
          "a task is left in the state \(state) when the run is over",
          [life.id],
          [calm, life.claims.last?.answered, place]
        )
      } else if let end = life.ends.last, end.asked.date > latest {
        report(
          .everythingEnds,
          "a task ended more than \(bound) after the faults",
          [life.id],
          [calm, end.asked]
        )
      }
    }
  }

  // MARK: Rare paths

  /// Two ends are close together if they are asked for within this time, in microseconds.
  private static let closeTime: Int64 = 1000

  mutating func countRarePaths() {
    for life in tasks {
      for (claim, next) in zip(life.claims, life.claims.dropFirst()) {
        let attempt = life.attempts.last { $0.lease == claim.grant.lease }
        let wasEnded = life.steps.contains {
          $0.lease == claim.grant.lease && $0.endsClaim && $0.mayBeDone
        }
        guard let attempt, !wasEnded,
          attempt.ended.map({ next.answered.isCertainlyBefore($0) }) ?? true
        else { continue }
        report.rarePaths.lostLeases += 1
      }
      countUnanswered(life)
      report.rarePaths.lateBegins += lateBegins(life)
    }
    for members in members.values {
      let ends = members.compactMap { $0.ends.last?.asked.date }.sorted()
      guard ends.count == members.count, ends.count > 1 else { continue }
      if ends[ends.count - 1] - ends[ends.count - 2] <= Self.closeTime {
        report.rarePaths.closeLastMembers += 1
      }
    }
  }

  /// How many attempts began when their task had been handed out again.
  private func lateBegins(_ life: TaskLife) -> Int {
    guard life.claims.count > 1 else { return 0 }
    return life.attempts.count { attempt in
      guard let claim = life.claim(with: attempt.lease) else { return false }
      return life.claims.contains {
        claim.isCertainlyBefore($0) && $0.answered.isCertainlyBefore(attempt.began)
      }
    }
  }

  /// Counts a change that was not sent again, because its process was killed.
  private mutating func countLast(_ step: HistoryStep, of life: TaskLife, isTaken: Bool) {
    guard step.endsTask else { return }
    if isTaken {
      report.rarePaths.unansweredAndNotDone += 1
    } else if life.ends.isEmpty, life.remaining == nil, index.remainingTasks != nil {
      report.rarePaths.unansweredButDone += 1
    }
  }

  /// Counts changes without an answer of which a later line tells whether they were carried out.
  private mutating func countUnanswered(_ life: TaskLife) {
    for (number, step) in life.steps.enumerated() where step.endsClaim && step.result == .unknown {
      let later = life.steps[(number + 1)...].first {
        $0.lease == step.lease && $0.kind == step.kind && $0.result != .unknown
      }
      let isTaken = life.claims.contains { claim in
        claim.grant.lease != step.lease && step.asked < claim.answered
      }
      switch later?.result {
      case .done: report.rarePaths.unansweredAndNotDone += 1
      // Stale, and no other process was given the task: the first sending has ended the claim.
      case .skipped where !isTaken: report.rarePaths.unansweredButDone += 1
      case nil: countLast(step, of: life, isTaken: isTaken)
      case .skipped, .unknown: break
      }
    }
    for insertion in life.insertions where insertion.result == .unknown {
      let next = life.insertions.first { insertion.asked < $0.asked }
      if life.claims.contains(where: { claim in
        next.map { claim.answered.isCertainlyBefore($0.asked) } ?? true
      }) {
        report.rarePaths.unansweredButDone += 1
      } else if next == nil, life.claims.isEmpty, life.remaining == nil,
        index.remainingTasks != nil
      {
        report.rarePaths.unansweredAndNotDone += 1
      }
    }
  }
}
