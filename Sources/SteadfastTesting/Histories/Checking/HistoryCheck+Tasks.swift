import SteadfastQueue

/// What becomes of each task: the promises H1, H2 and H3.
extension HistoryCheck {
  /// H1: no acknowledged task is missing.
  mutating func checkPresence() {
    guard let end = index.remainingTasks else {
      return skip(.nothingIsLost, "no process has recorded which tasks remain")
    }
    for life in tasks where life.remaining == nil && !mayHaveLeft(life) {
      let insertion = life.insertions.first { $0.isDone && $0.isCertainlyBefore(end) }
      guard let insertion else { continue }
      report(
        .nothingIsLost,
        "a task whose insertion was acknowledged is not in the store, and has not ended",
        [life.id],
        [insertion.asked, insertion.answered, life.claims.last?.answered, end]
      )
    }
  }

  /// Whether a task that is gone may have ended, or have been removed.
  private func mayHaveLeft(_ life: TaskLife) -> Bool {
    let left = life.steps.contains { step in
      step.mayBeDone && (step.endsTask || step.kind == .remove)
    }
    return left || mayHaveEndedAlong(life)
  }

  /// Whether a task that it waits for may have ended without success, in a call without an answer.
  func mayHaveEndedAlong(_ life: TaskLife) -> Bool {
    awaited(by: life).contains { other in
      other.steps.contains { step in
        switch step.kind {
        case .abandon, .cancel, .remove: step.result == .unknown
        case .insert, .succeed, .retry, .release, .park, .unpark, .pause, .resume, .restart,
          .reschedule, .update, .extend, .prune, .rebase, .remember, .suspend, .complete, .setValue,
          .other:
          false
        }
      }
    }
  }

  /// H2: nothing is there that was not enqueued.
  mutating func checkOrigins() {
    for life in tasks where !life.insertions.contains(where: \.mayBeDone) {
      let places = [life.claims.first?.answered, life.attempts.first?.began]
      if life.claims.isEmpty, life.attempts.isEmpty, life.ends.isEmpty, life.remaining == nil {
        continue
      }
      report(
        .nothingIsAdded,
        life.insertions.isEmpty
          ? "a task that no process has enqueued is there"
          : "a task is there although its insertion was refused",
        [life.id],
        life.insertions.map(\.answered)
          + (life.remaining == nil ? places : places + [index.remainingTasks])
      )
    }
  }

  /// H3, and for tasks that were sent twice or follow a batch H2 and H8: a task ends once.
  mutating func checkEnds() {
    for life in tasks {
      checkNumberOfEnds(life)
      checkLeasesOfSteps(life)
    }
  }

  /// The promise that a second end breaks.
  private func promiseOfOneEnd(_ life: TaskLife) -> History.Promise {
    if members[life.id] != nil { return .waitingTasksAreLast }
    let sendings = life.insertions.filter(\.mayBeDone)
    return sendings.count > 1 || sendings.contains { $0.result == .unknown }
      ? .nothingIsAdded : .oneEnd
  }

  private mutating func checkNumberOfEnds(_ life: TaskLife) {
    let (ends, restarts) = (life.ends, life.restarts)
    if ends.count > 1 + restarts.count {
      report(
        promiseOfOneEnd(life),
        "\(ends.count) ends were accepted, and \(restarts.count) restarts between them",
        [life.id],
        life.insertions.map(\.asked) + ends.map(\.answered)
      )
    } else if restarts.isEmpty, let end = ends.first {
      if let claim = life.claims.first(where: { end.isCertainlyBefore($0.asked) }) {
        report(
          promiseOfOneEnd(life),
          "a task was handed out after its end was accepted",
          [life.id],
          life.insertions.map(\.asked) + [end.asked, end.answered, claim.answered]
        )
      } else if let state = life.remaining.flatMap(TaskState.init), !state.isFinished,
        let remaining = index.remainingTasks, end.isCertainlyBefore(remaining)
      {
        report(
          promiseOfOneEnd(life),
          "a task whose end was accepted is left in the store in the state \(state)",
          [life.id],
          life.insertions.map(\.asked) + [end.asked, end.answered, remaining]
        )
      }
    }
  }

  /// An accepted change names the latest lease that was handed out by then.
  private mutating func checkLeasesOfSteps(_ life: TaskLife) {
    var ended: [UInt64: HistoryStep] = [:]
    for step in life.steps where step.isDone {
      guard let lease = step.lease else { continue }
      let own = life.claim(with: lease)
      let newer = life.claims.first { claim in
        own?.isCertainlyBefore(claim) ?? false && claim.answered.isCertainlyBefore(step.asked)
      }
      if let newer {
        report(
          .oneEnd,
          "the change \(step.kind) was accepted, though a later lease had been handed out",
          [life.id],
          [own?.answered, newer.answered, step.asked, step.answered]
        )
      } else if own == nil {
        report(
          .oneEnd,
          "the change \(step.kind) was accepted with the lease \(lease), which no process was given",
          [life.id],
          [step.asked, step.answered]
        )
      }
      guard step.endsClaim else { continue }
      if let other = ended.updateValue(step, forKey: lease) {
        report(
          .oneEnd,
          "two changes that end the claim \(lease) were accepted: \(other.kind) and \(step.kind)",
          [life.id],
          [other.answered, step.answered]
        )
      }
    }
  }
}
