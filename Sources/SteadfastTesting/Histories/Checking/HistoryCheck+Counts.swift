import SteadfastQueue

/// What the store has counted: the promise H5.
extension HistoryCheck {
  /// What a claim may show of a task.
  private struct Counts: Equatable, CustomStringConvertible {
    var retries: Int
    var interruptions: Int
    /// How many claims more may have run out that no process knows of.
    var lost = 0

    var description: String {
      let range = lost > 0 ? " to \(interruptions + lost)" : ""
      return "\(retries) retries and \(interruptions)\(range) interruptions"
    }

    func allows(_ grant: HistoryGrant) -> Bool {
      grant.retryCount == retries && grant.interruptionCount >= interruptions
        && grant.interruptionCount <= interruptions + lost
    }
  }

  /// H5: attempts and interruptions are counted exactly.
  mutating func checkCounts() {
    for life in tasks where !life.insertions.isEmpty {
      for (number, claim) in life.claims.enumerated() {
        let last = lastClaims(before: number, of: life)
        // Either another promise is broken, or it is not known what came first.
        if last.contains(where: { $0.grant.lease == claim.grant.lease }) || overlaps(life, number) {
          continue
        }
        let begin = last.map(\.asked).min() ?? life.insertions[0].asked
        // The counts are then those of a task that is not followed.
        let isTakenOver = life.takenOver.contains { place in
          !claim.answered.isCertainlyBefore(place) && !place.isCertainlyBefore(begin)
        }
        if isTakenOver { continue }
        var expected = last.flatMap { counts(after: $0, before: claim, of: life) }
        if last.isEmpty {
          expected = [
            Counts(retries: 0, interruptions: 0, lost: lostClaims(from: begin, to: claim))
          ]
        }
        guard !expected.contains(where: { $0.allows(claim.grant) }) else { continue }
        let leases = Set(last.map(\.grant.lease))
        let steps = life.steps.filter { $0.lease.map(leases.contains) ?? false }
        report(
          .exactCounts,
          "a task was handed out with \(claim.grant.retryCount) retries and "
            + "\(claim.grant.interruptionCount) interruptions, and has had "
            + expected.map(\.description).joined(separator: ", or "),
          [life.id],
          last.map(\.answered) + steps.flatMap { [$0.asked, $0.answered] } + [claim.answered]
        )
      }
    }
  }

  /// The claims that may have been the last one before a claim.
  ///
  /// There are several if they overlap: the answer to the earlier one may have come later.
  private func lastClaims(before number: Int, of life: TaskLife) -> [HistoryClaim] {
    let earlier = life.claims[..<number]
    return earlier.filter { claim in !earlier.contains { claim.isCertainlyBefore($0) } }
  }

  /// Whether other claims may have been made at the same time as a claim.
  private func overlaps(_ life: TaskLife, _ number: Int) -> Bool {
    let claim = life.claims[number]
    return life.claims[..<number].contains { !$0.isCertainlyBefore(claim) }
      // One that is answered later may have been made earlier.
      || life.claims[(number + 1)...].contains { !claim.isCertainlyBefore($0) }
  }

  /// The counts that the next claim may show.
  private func counts(
    after claim: HistoryClaim,
    before next: HistoryClaim,
    of life: TaskLife
  ) -> [Counts] {
    let own = life.steps.filter { step in
      step.lease == claim.grant.lease && step.mayBeDone
        && !next.answered.isCertainlyBefore(step.asked)
    }
    let notes = own.filter { $0.kind == .remember }
    let (retries, interruptions) = (claim.grant.retryCount, claim.grant.interruptionCount)
    var held = [Counts(retries: retries, interruptions: interruptions)]
    if !notes.isEmpty { held.append(Counts(retries: retries, interruptions: 0)) }
    if notes.contains(where: \.isDone) { held.removeFirst() }

    let ends = own.filter(\.endsClaim)
    let settled = ends.first(where: \.isDone).map { [$0] } ?? ends
    var expected = settled.flatMap { end in held.map { self.counts($0, after: end) } }
    let lost = lostClaims(from: claim.asked, to: next)
    for index in expected.indices { expected[index].lost = lost }
    if !ends.contains(where: \.isDone) {
      let lost = lostClaims(from: claim.asked, to: next, besides: 1)
      expected += held.map {
        Counts(retries: retries, interruptions: $0.interruptions + 1, lost: lost)
      }
    }
    let isRestarted = life.restarts.contains { step in
      step.lease == nil && !next.answered.isCertainlyBefore(step.asked)
        && !step.isCertainlyBefore(claim.asked)
    }
    if isRestarted { expected.append(Counts(retries: 0, interruptions: 0, lost: lost)) }
    return expected
  }

  /// The counts of a task after a change that ends its claim.
  private func counts(_ held: Counts, after step: HistoryStep) -> Counts {
    switch step.kind {
    case .retry: Counts(retries: step.retryCount ?? held.retries, interruptions: 0)
    case .suspend: Counts(retries: held.retries, interruptions: 0)
    case .restart: Counts(retries: 0, interruptions: 0)
    case .insert, .succeed, .abandon, .release, .park, .unpark, .cancel, .pause, .resume,
      .reschedule, .update, .remove, .extend, .prune, .rebase, .remember, .complete, .setValue,
      .other:
      held
    }
  }

  /// How many claims of a task may have run out that no process knows of.
  ///
  /// Each of them has a call without an answer, and lasts for its time, as `others` do.
  private func lostClaims(
    from begin: HistoryPlace,
    to claim: HistoryClaim,
    besides others: Int = 0
  ) -> Int {
    let calls = index.lostClaims.filter { !claim.answered.isCertainlyBefore($0.asked) }
    guard let shortest = calls.compactMap(\.seconds).min(), shortest > 0 else { return calls.count }
    let time = claim.answered.date - begin.date + tolerance
    let room = Int(time / max(1, Duration.seconds(shortest).microseconds))
    return max(0, min(calls.count, room - others))
  }
}
