import SteadfastQueue

/// How long a claim is certain to have been held.
struct Holding {
  let task: TaskID
  let claim: HistoryClaim
  /// The earliest date at which the claim can have run out; `nil` if it does not.
  let runsOut: Int64?
  /// The earliest place at which something may have ended it.
  let released: HistoryPlace?

  /// Whether it may have run out.
  func mayHaveRunOut(at place: HistoryPlace, tolerance: Int64) -> Bool {
    runsOut.map { place.date + tolerance >= $0 } ?? false
  }

  /// Whether it was held for certain when another claim was answered.
  func isHeld(at place: HistoryPlace, tolerance: Int64 = 0) -> Bool {
    if mayHaveRunOut(at: place, tolerance: tolerance) { return false }
    return released.map { place.isCertainlyBefore($0) } ?? true
  }
}

/// Who holds a task: the promises H4 and H7.
extension HistoryCheck {
  /// Returns how long a claim is certain to have been held.
  func holding(_ claim: HistoryClaim, of life: TaskLife) -> Holding {
    let own = life.steps.filter { $0.lease == claim.grant.lease && $0.mayBeDone }
    var released = own.filter(\.endsClaim).map(\.asked).min()
    if claim.seconds == nil {
      // Opening a store that one queue uses ends all claims.
      let opened = index.openings.filter { !$0.isCertainlyBefore(claim.asked) }.min()
      released = [released, opened].compactMap { $0 }.min()
    }
    return Holding(
      task: life.id,
      claim: claim,
      runsOut: earliestRunningOut(of: claim, extendedBy: own.filter { $0.kind == .extend }),
      released: released
    )
  }

  /// The earliest date at which a claim can have run out, in microseconds.
  ///
  /// It is decided by the grant or the extension that was carried out last, and at the earliest
  /// when that was asked for.
  private func earliestRunningOut(
    of claim: HistoryClaim,
    extendedBy steps: [HistoryStep]
  ) -> Int64? {
    guard let seconds = claim.seconds else { return nil }
    func end(_ asked: HistoryPlace, _ seconds: Double) -> Int64 {
      asked.date + Duration.seconds(seconds).microseconds
    }
    func isOverruled(by place: HistoryPlace?) -> Bool {
      guard let place else { return false }
      return steps.contains { $0.isDone && place.isCertainlyBefore($0.asked) }
    }
    var ends = steps.filter { !isOverruled(by: $0.answered) }.map { end($0.asked, $0.seconds ?? 0) }
    if !steps.contains(where: \.isDone) { ends.append(end(claim.asked, seconds)) }
    return ends.min()
  }

  /// H4: a task has one holder at a time.
  mutating func checkHolders() {
    for life in tasks {
      checkClaims(life)
      checkAttempts(life)
    }
  }

  private mutating func checkClaims(_ life: TaskLife) {
    for (number, claim) in life.claims.enumerated() {
      let same = life.claims[(number + 1)...].first { $0.grant.lease == claim.grant.lease }
      if let same {
        report(
          .oneHolder,
          "the lease \(claim.grant.lease) was handed out twice",
          [life.id],
          [claim.answered, same.answered]
        )
      }
    }
    for (claim, next) in zip(life.claims, life.claims.dropFirst())
    where claim.grant.lease != next.grant.lease && isHeld(claim, of: life, at: next)
      // Of two claims that overlap, each may have been the first.
      && (claim.isCertainlyBefore(next) || isHeld(next, of: life, at: claim))
    {
      report(
        .oneHolder,
        "a task was handed out again before its claim had ended or run out",
        [life.id],
        [claim.asked, claim.answered, next.asked, next.answered]
      )
    }
  }

  private func isHeld(_ claim: HistoryClaim, of life: TaskLife, at next: HistoryClaim) -> Bool {
    holding(claim, of: life).isHeld(at: next.answered, tolerance: tolerance)
  }

  /// Two attempts overlap only if the claim of one of them had run out when the later one began.
  ///
  /// It may be that of the later one: a process that is stopped right before an attempt begins goes
  /// on with it.
  private mutating func checkAttempts(_ life: TaskLife) {
    for (attempt, next) in zip(life.attempts, life.attempts.dropFirst()) {
      guard let ended = attempt.ended, next.began.isCertainlyBefore(ended),
        let claim = life.claim(with: attempt.lease),
        holding(claim, of: life).isHeld(at: next.began, tolerance: tolerance)
      else { continue }
      let later = life.claim(with: next.lease).map { holding($0, of: life) }
      if let later, later.mayHaveRunOut(at: next.began, tolerance: tolerance) { continue }
      report(
        .oneHolder,
        "an attempt began while another one was under way, and neither claim had run out",
        [life.id],
        [claim.asked, attempt.began, next.began, ended]
      )
    }
  }

  /// H7: of the tasks with one order key, one is held at a time.
  mutating func checkRunners(_ lives: [TaskLife]) {
    let holdings = lives.flatMap { life in life.claims.map { holding($0, of: life) } }
      .sorted { $0.claim.asked < $1.claim.asked }
    var active: [Holding] = []
    for holding in holdings {
      active.removeAll { !$0.isHeld(at: holding.claim.asked) }
      for other in active
      where other.task != holding.task && other.claim.isCertainlyBefore(holding.claim)
        && other.isHeld(at: holding.claim.answered, tolerance: tolerance)
      {
        report(
          .oneRunnerForKey,
          "two tasks with one order key were held at the same time",
          [other.task, holding.task],
          [other.claim.answered, holding.claim.asked, holding.claim.answered]
        )
      }
      active.append(holding)
    }
  }
}
