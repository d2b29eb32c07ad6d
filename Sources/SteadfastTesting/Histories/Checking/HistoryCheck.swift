import SteadfastQueue

extension History {
  /// Checks whether the store has kept its promises.
  ///
  /// The cost grows with the number of lines, and with the square of the number of tasks that share
  /// an order key.
  /// - Parameter expectations: what to expect besides the promises that hold for every run.
  /// - Returns: The report.
  public func check(_ expectations: Expectations = Expectations()) -> Report {
    var check = HistoryCheck(self, expectations)
    check.checkPresence()
    check.checkOrigins()
    check.checkEnds()
    check.checkHolders()
    check.checkCounts()
    check.checkKeys()
    check.checkWaitingTasks()
    check.checkLimits()
    check.checkEveryTaskEnds()
    check.countRarePaths()
    return check.report
  }
}

/// The check of one history; each `check…` method checks one promise or a few related ones.
struct HistoryCheck {
  let history: History
  let expectations: History.Expectations
  let index: HistoryIndex
  /// The events of each task, in the order of the tasks' IDs.
  let tasks: [TaskLife]
  /// The members of each batch, by the batch's follower.
  let members: [TaskID: [TaskLife]]
  /// The maximum difference between two clocks, in microseconds.
  let tolerance: Int64
  var report = History.Report()

  init(_ history: History, _ expectations: History.Expectations) {
    self.history = history
    self.expectations = expectations
    index = HistoryIndex(history)
    tasks = index.tasks
    members = Dictionary(grouping: tasks.filter { $0.description?.follower != nil }) {
      $0.description?.follower ?? $0.id
    }
    tolerance = expectations.clockTolerance.microseconds
    report.taskCount = tasks.count
  }

  /// Returns the tasks that a task waits for, as dependencies or as members of its batch.
  func awaited(by life: TaskLife) -> [TaskLife] {
    let named = life.description?.after?.compactMap { index.lives[$0] } ?? []
    return named + (members[life.id] ?? [])
  }

  /// Adds a violation of a promise to the report: its description, its tasks, and the positions of
  /// the lines that show it.
  mutating func addViolation(
    of promise: History.Promise,
    _ found: String,
    _ tasks: [TaskID],
    _ positions: [HistoryPosition?]
  ) {
    let lines = positions.compactMap { $0 }.map(history.text)
    report.violations.append(
      History.Violation(promise: promise, found: found, tasks: tasks, lines: lines)
    )
  }

  mutating func skip(_ promise: History.Promise, because reason: String) {
    report.skipped.append((promise, reason))
  }
}

/// The checks that each task exists and ends as promised: H1, H2 and H3.
extension HistoryCheck {
  /// Checks H1: no acknowledged task is missing.
  mutating func checkPresence() {
    guard let end = index.remainingTasks else {
      return skip(.nothingIsLost, because: "no process has recorded which tasks remain")
    }
    for life in tasks where life.remaining == nil && !mayHaveEndedOrBeenRemoved(life) {
      let insertion = life.insertions.first { $0.isDone && $0.isCertainlyBefore(end) }
      guard let insertion else { continue }
      addViolation(
        of: .nothingIsLost,
        "a task whose insertion was acknowledged is not in the store, and has not ended",
        [life.id],
        [insertion.asked, insertion.answered, life.claims.last?.answered, end]
      )
    }
  }

  /// Returns whether a missing task may have ended or been removed.
  private func mayHaveEndedOrBeenRemoved(_ life: TaskLife) -> Bool {
    let left = life.steps.contains { step in
      step.mayBeDone && (step.endsTask || step.kind == .remove)
    }
    return left || mayHaveEndedBecauseOfOthers(life)
  }

  /// Returns whether a task may have ended or been removed because of another task.
  ///
  /// It may if a call without a response tried to end or remove a task that this task waits for.
  func mayHaveEndedBecauseOfOthers(_ life: TaskLife) -> Bool {
    awaited(by: life).contains { other in
      other.steps.contains { step in
        switch step.kind {
        case .abandon, .cancel, .remove: step.result == .unknown
        case .insert, .succeed, .retry, .release, .park, .unpark, .pause, .resume, .restart,
          .reschedule, .update, .extend, .command, .prune, .rebase, .remember, .suspend, .complete,
          .setValue, .other:
          false
        }
      }
    }
  }

  /// Checks H2: only enqueued tasks exist.
  mutating func checkOrigins() {
    for life in tasks where !life.insertions.contains(where: \.mayBeDone) {
      let positions = [life.claims.first?.answered, life.attempts.first?.began]
      if life.claims.isEmpty, life.attempts.isEmpty, life.ends.isEmpty, life.remaining == nil {
        continue
      }
      addViolation(
        of: .nothingIsAdded,
        life.insertions.isEmpty
          ? "a task exists that no process has enqueued"
          : "a task exists although its insertion was refused",
        [life.id],
        life.insertions.map(\.answered)
          + (life.remaining == nil ? positions : positions + [index.remainingTasks])
      )
    }
  }

  /// Checks H3: a task ends once.
  ///
  /// If the insertion of the task was sent twice, a second end breaks H2. If the task is the
  /// follower of a batch, a second end breaks H8.
  mutating func checkEnds() {
    for life in tasks {
      checkNumberOfEnds(of: life)
      checkLeasesOfSteps(of: life)
    }
  }

  /// Returns the promise that a second end of the task breaks.
  private func promiseBrokenBySecondEnd(of life: TaskLife) -> History.Promise {
    if members[life.id] != nil { return .waitingTasksAreLast }
    let sendings = life.insertions.filter(\.mayBeDone)
    return sendings.count > 1 || sendings.contains { $0.result == .unknown }
      ? .nothingIsAdded : .oneEnd
  }

  private mutating func checkNumberOfEnds(of life: TaskLife) {
    let (ends, restarts) = (life.ends, life.restarts)
    if ends.count > 1 + restarts.count {
      addViolation(
        of: promiseBrokenBySecondEnd(of: life),
        "\(ends.count) ends were accepted, but only \(restarts.count) restarts",
        [life.id],
        life.insertions.map(\.asked) + ends.map(\.answered)
      )
    } else if restarts.isEmpty, let end = ends.first {
      if let claim = life.claims.first(where: { end.isCertainlyBefore($0.asked) }) {
        addViolation(
          of: promiseBrokenBySecondEnd(of: life),
          "a task was claimed after its end was accepted",
          [life.id],
          life.insertions.map(\.asked) + [end.asked, end.answered, claim.answered]
        )
      } else if let state = life.remaining.flatMap(TaskState.init), !state.isFinished,
        let remaining = index.remainingTasks, end.isCertainlyBefore(remaining)
      {
        addViolation(
          of: promiseBrokenBySecondEnd(of: life),
          "a task whose end was accepted remains in the store in the state \(state)",
          [life.id],
          life.insertions.map(\.asked) + [end.asked, end.answered, remaining]
        )
      }
    }
  }

  /// Checks that each accepted change has the latest lease that its task had at that time.
  private mutating func checkLeasesOfSteps(of life: TaskLife) {
    var ended: [UInt64: HistoryStep] = [:]
    for step in life.steps where step.isDone {
      guard let lease = step.lease else { continue }
      let own = life.claim(with: lease)
      let newer = life.claims.first { claim in
        own?.isCertainlyBefore(claim) ?? false && claim.answered.isCertainlyBefore(step.asked)
      }
      if let newer {
        addViolation(
          of: .oneEnd,
          "the change \(step.kind) was accepted with the lease \(lease), although the task had a "
            + "later lease",
          [life.id],
          [own?.answered, newer.answered, step.asked, step.answered]
        )
      } else if own == nil {
        addViolation(
          of: .oneEnd,
          "the change \(step.kind) was accepted with the lease \(lease), which no process received",
          [life.id],
          [step.asked, step.answered]
        )
      }
      guard step.endsClaim else { continue }
      if let other = ended.updateValue(step, forKey: lease) {
        addViolation(
          of: .oneEnd,
          "two changes that end the claim \(lease) were accepted: \(other.kind) and \(step.kind)",
          [life.id],
          [other.answered, step.answered]
        )
      }
    }
  }
}

/// The checks of the store's counts: the promise H5.
extension HistoryCheck {
  /// The counts that a claim of a task may show.
  private struct Counts: Equatable, CustomStringConvertible {
    var retries: Int
    var interruptions: Int
    /// The maximum number of further claims that expired, and of which no process knows.
    var lost = 0

    var description: String {
      let range = lost > 0 ? " to \(interruptions + lost)" : ""
      return "\(retries) retries and \(interruptions)\(range) interruptions"
    }

    func match(_ grant: HistoryGrant) -> Bool {
      grant.retryCount == retries && grant.interruptionCount >= interruptions
        && grant.interruptionCount <= interruptions + lost
    }
  }

  /// Checks H5: attempts and interruptions are counted exactly.
  mutating func checkCounts() {
    for life in tasks where !life.insertions.isEmpty {
      for (number, claim) in life.claims.enumerated() {
        let last = lastClaims(before: number, of: life)
        // If the lease was issued twice, another promise is broken. If claims overlap, their order
        // is unknown.
        if last.contains(where: { $0.grant.lease == claim.grant.lease }) { continue }
        if mayOverlapOtherClaims(number, of: life) { continue }
        let begin = last.map(\.asked).min() ?? life.insertions[0].asked
        // Skip the claim if the task may have taken its counts from another task with its unique
        // key. This check does not track these counts.
        let isTakenOver = life.takenOver.contains { position in
          !claim.answered.isCertainlyBefore(position) && !position.isCertainlyBefore(begin)
        }
        if isTakenOver { continue }
        var expected = last.flatMap { counts(after: $0, before: claim, of: life) }
        if last.isEmpty {
          expected = [
            Counts(retries: 0, interruptions: 0, lost: maxLostClaims(from: begin, to: claim))
          ]
        }
        guard !expected.contains(where: { $0.match(claim.grant) }) else { continue }
        let leases = Set(last.map(\.grant.lease))
        let steps = life.steps.filter { $0.lease.map(leases.contains) ?? false }
        addViolation(
          of: .exactCounts,
          "a task was claimed with \(claim.grant.retryCount) retries and "
            + "\(claim.grant.interruptionCount) interruptions, but should have "
            + expected.map(\.description).joined(separator: ", or "),
          [life.id],
          last.map(\.answered) + steps.flatMap { [$0.asked, $0.answered] } + [claim.answered]
        )
      }
    }
  }

  /// Returns the earlier claims, any of which may be the last before the claim with this index.
  ///
  /// There are several if the claims overlap, because the responses may have come in another order
  /// than the claims were made.
  private func lastClaims(before number: Int, of life: TaskLife) -> [HistoryClaim] {
    let earlier = life.claims[..<number]
    return earlier.filter { claim in !earlier.contains { claim.isCertainlyBefore($0) } }
  }

  /// Returns whether other claims of the task overlap the claim with this index.
  private func mayOverlapOtherClaims(_ number: Int, of life: TaskLife) -> Bool {
    let claim = life.claims[number]
    return life.claims[..<number].contains { !$0.isCertainlyBefore(claim) }
      // A claim whose response came later may have been made earlier.
      || life.claims[(number + 1)...].contains { !claim.isCertainlyBefore($0) }
  }

  /// Returns the counts that the claim after `claim` may show.
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
    let lost = maxLostClaims(from: claim.asked, to: next)
    for index in expected.indices { expected[index].lost = lost }
    if !ends.contains(where: \.isDone) {
      let lost = maxLostClaims(from: claim.asked, to: next, besides: 1)
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

  /// Returns the counts of a task after a change that ends its claim.
  private func counts(_ held: Counts, after step: HistoryStep) -> Counts {
    switch step.kind {
    case .retry: Counts(retries: step.retryCount ?? held.retries, interruptions: 0)
    case .suspend: Counts(retries: held.retries, interruptions: 0)
    case .restart: Counts(retries: 0, interruptions: 0)
    case .insert, .succeed, .abandon, .release, .park, .unpark, .cancel, .pause, .resume,
      .reschedule, .update, .remove, .extend, .command, .prune, .rebase, .remember, .complete,
      .setValue, .other:
      held
    }
  }

  /// Returns the maximum number of claims of which no process knows, and that expired before
  /// `claim`.
  ///
  /// Each was made by a different call without a response. Each lasted at least the shortest
  /// requested duration, and so did each of the `others`: claims that are known to have expired.
  private func maxLostClaims(
    from begin: HistoryPosition,
    to claim: HistoryClaim,
    besides others: Int = 0
  ) -> Int {
    let calls = index.lostClaims.filter { !claim.answered.isCertainlyBefore($0.asked) }
    guard let shortest = calls.compactMap(\.seconds).min(), shortest > 0 else { return calls.count }
    let time = claim.answered.date - begin.date + tolerance
    let maximum = Int(time / max(1, Duration.seconds(shortest).microseconds))
    return max(0, min(calls.count, maximum - others))
  }
}

/// The period in which a claim certainly lasted.
struct Holding {
  let task: TaskID
  let claim: HistoryClaim
  /// The earliest date at which the claim may have expired; `nil` if it never expires.
  let earliestExpiry: Int64?
  /// The earliest position at which a change may have ended the claim.
  let released: HistoryPosition?

  /// Returns whether the claim may have expired.
  func mayHaveExpired(at position: HistoryPosition, tolerance: Int64) -> Bool {
    earliestExpiry.map { position.date + tolerance >= $0 } ?? false
  }

  /// Returns whether the claim certainly still lasted at a position.
  func isHeld(at position: HistoryPosition, tolerance: Int64 = 0) -> Bool {
    if mayHaveExpired(at: position, tolerance: tolerance) { return false }
    return released.map { position.isCertainlyBefore($0) } ?? true
  }
}

/// The checks that claims and attempts don't overlap: the promises H4 and H7.
extension HistoryCheck {
  /// Returns the period in which a claim certainly lasted.
  func holding(_ claim: HistoryClaim, of life: TaskLife) -> Holding {
    let own = life.steps.filter { $0.lease == claim.grant.lease && $0.mayBeDone }
    var released = own.filter(\.endsClaim).map(\.asked).min()
    if claim.seconds == nil {
      // In a store with one queue, opening the store ends all claims.
      let opened = index.openings.filter { !$0.isCertainlyBefore(claim.asked) }.min()
      released = [released, opened].compactMap { $0 }.min()
    }
    return Holding(
      task: life.id,
      claim: claim,
      earliestExpiry: earliestExpiry(of: claim, extendedBy: own.filter { $0.kind == .extend }),
      released: released
    )
  }

  /// Returns the earliest date at which a claim may have expired, in microseconds.
  ///
  /// The last extension determines the date or, if there is none, the claim itself. The duration is
  /// counted from the request, which is the earliest possible start.
  private func earliestExpiry(
    of claim: HistoryClaim,
    extendedBy steps: [HistoryStep]
  ) -> Int64? {
    guard let seconds = claim.seconds else { return nil }
    func end(_ asked: HistoryPosition, _ seconds: Double) -> Int64 {
      asked.date + Duration.seconds(seconds).microseconds
    }
    func isOverruled(by position: HistoryPosition?) -> Bool {
      guard let position else { return false }
      return steps.contains { $0.isDone && position.isCertainlyBefore($0.asked) }
    }
    var ends = steps.filter { !isOverruled(by: $0.answered) }.map { end($0.asked, $0.seconds ?? 0) }
    if !steps.contains(where: \.isDone) { ends.append(end(claim.asked, seconds)) }
    return ends.min()
  }

  /// Checks H4: a task is claimed by one process at a time.
  mutating func checkHolders() {
    for life in tasks {
      checkClaims(of: life)
      checkAttempts(of: life)
    }
  }

  private mutating func checkClaims(of life: TaskLife) {
    for (number, claim) in life.claims.enumerated() {
      let same = life.claims[(number + 1)...].first { $0.grant.lease == claim.grant.lease }
      if let same {
        addViolation(
          of: .oneHolder,
          "the lease \(claim.grant.lease) was issued twice",
          [life.id],
          [claim.answered, same.answered]
        )
      }
    }
    for (claim, next) in zip(life.claims, life.claims.dropFirst())
    where claim.grant.lease != next.grant.lease && isHeld(claim, of: life, at: next)
      // If two claims overlap, either may be the first.
      && (claim.isCertainlyBefore(next) || isHeld(next, of: life, at: claim))
    {
      addViolation(
        of: .oneHolder,
        "a task was claimed again before its claim had ended or expired",
        [life.id],
        [claim.asked, claim.answered, next.asked, next.answered]
      )
    }
  }

  /// Returns whether a claim certainly still lasted when the response to the next claim came.
  private func isHeld(_ claim: HistoryClaim, of life: TaskLife, at next: HistoryClaim) -> Bool {
    holding(claim, of: life).isHeld(at: next.answered, tolerance: tolerance)
  }

  /// Checks that two attempts overlap only if the claim of one of them had expired.
  ///
  /// It may be the claim of the later attempt: a process that was suspended right before it starts
  /// an attempt does not notice that the claim has expired.
  private mutating func checkAttempts(of life: TaskLife) {
    for (attempt, next) in zip(life.attempts, life.attempts.dropFirst()) {
      guard let ended = attempt.ended, next.began.isCertainlyBefore(ended),
        let claim = life.claim(with: attempt.lease),
        holding(claim, of: life).isHeld(at: next.began, tolerance: tolerance)
      else { continue }
      let later = life.claim(with: next.lease).map { holding($0, of: life) }
      if let later, later.mayHaveExpired(at: next.began, tolerance: tolerance) { continue }
      addViolation(
        of: .oneHolder,
        "an attempt started while another attempt at the task ran, and neither claim had expired",
        [life.id],
        [claim.asked, attempt.began, next.began, ended]
      )
    }
  }

  /// Checks H7: only one of these tasks, which have the same order key, is claimed at a time.
  mutating func checkOneRunner(of lives: [TaskLife]) {
    let holdings = lives.flatMap { life in life.claims.map { holding($0, of: life) } }
      .sorted { $0.claim.asked < $1.claim.asked }
    var active: [Holding] = []
    for holding in holdings {
      active.removeAll { !$0.isHeld(at: holding.claim.asked) }
      for other in active
      where other.task != holding.task && other.claim.isCertainlyBefore(holding.claim)
        && other.isHeld(at: holding.claim.answered, tolerance: tolerance)
      {
        addViolation(
          of: .oneRunnerForKey,
          "two tasks with the same order key were held at the same time",
          [other.task, holding.task],
          [other.claim.answered, holding.claim.asked, holding.claim.answered]
        )
      }
      active.append(holding)
    }
  }
}

/// The checks of the order in which tasks are claimed: the promises H6, H7 and H8.
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

  /// Checks H6 and H7: tasks with the same order key are performed one at a time, in order.
  mutating func checkKeys() {
    var keys: [OrderKey: [TaskLife]] = [:]
    for life in tasks {
      guard let key = OrderKey(life.description) else { continue }
      keys[key, default: []].append(life)
    }
    for lives in keys.values {
      checkOrder(of: lives)
      checkOneRunner(of: lives)
    }
  }

  private mutating func checkOrder(of lives: [TaskLife]) {
    for life in lives {
      guard let claim = life.claims.first else { continue }
      for earlier in lives
      where isCertainlyInserted(earlier, before: life) && !earlier.mayHaveEnded(by: claim.answered)
        && !mayHaveEndedBecauseOfOthers(earlier)
      {
        addViolation(
          of: .orderOfKeys,
          "a task was claimed before an earlier task with its order key had ended",
          [earlier.id, life.id],
          [earlier.insertions.first?.asked, life.insertions.first?.asked, claim.answered]
            + [earlier.ends.first?.asked]
        )
      }
    }
  }

  /// Returns whether a task was certainly stored before another task.
  private func isCertainlyInserted(_ life: TaskLife, before other: TaskLife) -> Bool {
    // If an insertion was sent twice, either call may have stored the task.
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

  /// Checks H8: a task is claimed after the tasks that it waits for.
  mutating func checkWaitingTasks() {
    for life in tasks where !life.claims.isEmpty {
      let awaited = awaited(by: life)
      for claim in life.claims {
        for other in awaited
        where other.insertions.contains(where: { $0.isDone && $0.isCertainlyBefore(claim.asked) })
          && !other.mayHaveEnded(by: claim.answered) && !mayHaveEndedBecauseOfOthers(other)
        {
          addViolation(
            of: .waitingTasksAreLast,
            "a task was claimed before a task that it waits for had ended",
            [other.id, life.id],
            [other.insertions.first?.asked, claim.asked, claim.answered, other.ends.first?.asked]
          )
        }
      }
    }
  }
}

/// The checks of rate limits and time limits, H9 and H10, and the counts of rare events.
extension HistoryCheck {
  /// An attempt, and the period in which its queue counted the start.
  private struct Start {
    let task: TaskID
    let earliest: HistoryPosition
    let latest: HistoryPosition
  }

  /// Checks H9: at most as many attempts start within an interval as a limit allows.
  ///
  /// A queue counts a start at some time between the request that claimed the task and the start of
  /// the handler.
  mutating func checkLimits() {
    guard !expectations.limits.isEmpty else {
      return skip(.limitsHold, because: "no limit is expected")
    }
    for limit in expectations.limits {
      let starts = starts(under: limit).sorted { $0.earliest < $1.earliest }
      let interval = limit.interval.microseconds - tolerance
      for (number, first) in starts.enumerated() {
        let within = starts[number...]
          .prefix { $0.earliest.date < first.earliest.date + interval }
          .filter { $0.latest.date < first.earliest.date + interval }
        guard within.count > limit.count else { continue }
        addViolation(
          of: .limitsHold,
          "\(within.count) attempts started within \(limit.interval), but at most "
            + "\(limit.count) may",
          within.map(\.task),
          within.flatMap { [$0.earliest, $0.latest] }
        )
        break
      }
    }
  }

  /// Returns the starts of all attempts to which a limit applies.
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

  /// Checks H10: after the faults have ended, every task ends within a time limit.
  mutating func checkEveryTaskEnds() {
    guard let bound = expectations.endsWithin else {
      return skip(.everythingEnds, because: "no time limit is expected")
    }
    guard let calm = index.faultsEnd else {
      return skip(.everythingEnds, because: "no process has recorded the end of the faults")
    }
    let unfinished: Set<TaskState> = [.waiting, .running, .suspended]
    for life in tasks {
      let inserted = life.insertions.first(where: \.isDone)?.answered?.date ?? calm.date
      let latest = max(calm.date, inserted) + bound.microseconds
      if let position = index.remainingTasks, let state = life.remaining.flatMap(TaskState.init),
        unfinished.contains(state)
      {
        // Report the task even if the run was shorter than the limit, because the run is over.
        addViolation(
          of: .everythingEnds,
          "a task is still in the state \(state) at the end of the run",
          [life.id],
          [calm, life.claims.last?.answered, position]
        )
      } else if let end = life.ends.last, end.asked.date > latest {
        addViolation(
          of: .everythingEnds,
          "a task ended more than \(bound) after both its insertion and the end of the faults",
          [life.id],
          [calm, end.asked]
        )
      }
    }
  }

  // MARK: Rare paths

  /// The maximum time between two ends that count as close together, in microseconds.
  private static let closeTime: Int64 = 1000

  /// Counts the rare events that make a run worth checking.
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
      countUnansweredChanges(of: life)
      report.rarePaths.lateBegins += lateStartCount(of: life)
    }
    for members in members.values {
      let ends = members.compactMap { $0.ends.last?.asked.date }.sorted()
      guard ends.count == members.count, ends.count > 1 else { continue }
      if ends[ends.count - 1] - ends[ends.count - 2] <= Self.closeTime {
        report.rarePaths.closeLastMembers += 1
      }
    }
  }

  /// Returns the number of attempts that started after their task had been claimed again.
  private func lateStartCount(of life: TaskLife) -> Int {
    guard life.claims.count > 1 else { return 0 }
    return life.attempts.count { attempt in
      guard let claim = life.claim(with: attempt.lease) else { return false }
      return life.claims.contains {
        claim.isCertainlyBefore($0) && $0.answered.isCertainlyBefore(attempt.began)
      }
    }
  }

  /// Counts a change without a response that was not sent again, because its process was killed.
  private mutating func countLastChange(_ step: HistoryStep, of life: TaskLife, isTaken: Bool) {
    guard step.endsTask else { return }
    if isTaken {
      report.rarePaths.unansweredAndNotDone += 1
    } else if life.ends.isEmpty, life.remaining == nil, index.remainingTasks != nil {
      report.rarePaths.unansweredButDone += 1
    }
  }

  /// Counts the changes without a response for which a later line shows whether they were made.
  private mutating func countUnansweredChanges(of life: TaskLife) {
    for (number, step) in life.steps.enumerated() where step.endsClaim && step.result == .unknown {
      let later = life.steps[(number + 1)...].first {
        $0.lease == step.lease && $0.kind == step.kind && $0.result != .unknown
      }
      let isTaken = life.claims.contains { claim in
        claim.grant.lease != step.lease && step.asked < claim.answered
      }
      switch later?.result {
      case .done: report.rarePaths.unansweredAndNotDone += 1
      // The change was stale when it was sent again, but no other process has claimed the task. So
      // the first call made the change.
      case .skipped where !isTaken: report.rarePaths.unansweredButDone += 1
      case nil: countLastChange(step, of: life, isTaken: isTaken)
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
