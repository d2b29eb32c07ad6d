import Foundation
import SteadfastTesting
import Synchronization

@testable import SteadfastQueue

/// The checks that are made when nothing more can happen at the current instant.
extension ModelRun {
  /// Waits until nothing more can happen at the current instant, and makes all checks.
  ///
  /// - Throws: a ``ModelViolation``.
  func settle() async throws {
    await time.advance(by: .zero)
    let found = try await base.tasks(matching: TaskFilter(queue: nil), after: nil, limit: .max)
    // These calls can be made only if the store doesn't fail and the run isn't interrupted.
    if fault == nil, !isInterrupted { try await checkCounts(found) }
    try await checkMemories()
    let state = state.withLock { $0 }
    let now = (instant: time.clock.now, date: time.clock.date)
    let isBroken = fault?.isActive ?? false
    let hasFailed = state.queues.contains {
      $0.queue.core.dispatch.machine.withLock { $0.failure != nil }
    }
    let arePaused = state.queues.map { ($0.name, $0.queue.isPaused) }
    let violations = ledger.update { ledger -> [String] in
      ledger.compare(found)
      guard !isBroken else { return ledger.violations }
      ledger.checkOrder(
        state,
        now.instant,
        now.date,
        mayHaveFailed: fault != nil,
        hasFailed: hasFailed,
        claimsAhead: store.claimBatch > 0
      )
      if state.callsInFlight == 0, !hasFailed {
        for (name, isQueuePaused) in arePaused where state.hasRun(name) {
          let isPaused = state.isPaused || ledger.isPausedInStore(name)
          ledger.require(isQueuePaused == isPaused, "the queue is paused: \(isQueuePaused)")
        }
      }
      ledger.checkEvents()
      if state.callsInFlight == 0 { ledger.forgetRequests() }
      for (id, count) in state.pendingOutcomes where count > 0 {
        let hasEnded = ledger.entries[ledger.last(id)]?.hasEnded ?? true
        ledger.require(!hasEnded, "\(ledger.label(id)) has ended, but \(count) waits have not")
      }
      return ledger.violations
    }
    guard violations.isEmpty else {
      throw ModelViolation(description: violations.joined(separator: "\n"))
    }
  }

  private func checkCounts(_ found: [TaskRecord]) async throws {
    for (name, queue) in state.withLock(\.queues) {
      let count = try await queue.count
      let unfinished = found.count { !$0.state.isFinished && $0.queue == name }
      if count != unfinished { recordViolation("the queue's count is \(count), not \(unfinished)") }
      let statistics = try await queue.statistics
      ledger.update { $0.compare(statistics, of: name) }
    }
  }

  /// Runs the queues until all tasks have ended, and checks that no call, run or wait remains.
  func finish() async throws {
    if state.withLock(\.isShutDown) { try await restart() }
    try await perform(.registerStray)
    try await perform(.resumeQueue)
    try await perform(.resumeStore)
    try await perform(.setCondition(true))
    run()
    for _ in 0..<300 {
      try await settle()
      let left = try await tasks(matching: .unfinished)
      if left.isEmpty { break }
      for record in left where record.state == .paused { askToResume(record.id) }
      for record in left where record.state == .suspended && !record.hasDueDate {
        complete(record.id)
      }
      let ended = try await tasks(matching: TaskFilter(states: [.abandoned, .cancelled]))
      for record in ended where record.blocksOrder { askToRemove(record.id) }
      if state.withLock(\.isShutDown) {
        try await restart()
        try await perform(.setCondition(true))
      }
      runAgain()
      let date = left.map(\.availableDate).min() ?? time.clock.date
      // The queue's timer checks the date once a minute.
      let seconds = min(max(0, date.timeIntervalSince(time.clock.date)), 1e6)
      await time.advance(by: .seconds(seconds + 61))
    }
    try await restart()
    ledger.update { ledger in
      for id in ledger.known where ledger.entries[id]?.hasEnded != true {
        ledger.require(false, "\(ledger.label(id)) never ends")
      }
    }
    checkLeftovers()
    try await settle()
  }

  /// The tasks of all queues that match a filter.
  private func tasks(matching filter: TaskFilter) async throws -> [TaskRecord] {
    var found: [TaskRecord] = []
    for queue in queues { found += try await queue.tasks(matching: filter) }
    return found
  }

  private func askToResume(_ id: TaskID) {
    ledger.update { _ = $0.entries[id]?.asked.insert(.resume) }
    let queue = queue(of: id)
    start { _ = try? await queue.resume(id) }
  }

  private func askToRemove(_ id: TaskID) {
    ledger.update { _ = $0.entries[id]?.asked.insert(.remove) }
    let queue = queue(of: id)
    start { _ = try? await queue.remove(id) }
  }

  private func checkLeftovers() {
    let state = state.withLock { $0 }
    if state.callsInFlight > 0 { recordViolation("\(state.callsInFlight) calls have not returned") }
    if !state.runs.isEmpty { recordViolation("run() has not returned") }
    if state.pendingOutcomes.values.contains(where: { $0 != 0 }) {
      recordViolation("a wait for an outcome has not returned")
    }
  }
}

extension ModelLedger {
  /// The last successor of the task, or the task itself if it has none.
  fileprivate func last(_ id: TaskID) -> TaskID {
    var id = id
    while let successor = entries[id]?.successor { id = successor }
    return id
  }

  fileprivate func compare(_ found: [TaskRecord]) {
    let expected = table.entries.map(\.record).sorted { $0.id < $1.id }.map(\.modelSummary)
    let found = found.map(\.modelSummary)
    guard found != expected else { return }
    let difference = found.difference(from: expected)
    require(false, "the stored tasks differ from the expected ones: \(difference)")
  }

  fileprivate func compare(_ statistics: QueueStatistics, of queue: String) {
    let found = Tally(
      attempts: statistics.attempts,
      succeeded: statistics.succeeded,
      failed: statistics.failed,
      abandoned: statistics.abandoned,
      snoozed: statistics.snoozed
    )
    let tally = tallies[queue] ?? Tally()
    require(found == tally, "the statistics are \(found), expected: \(tally)")
    for state in TaskState.allCases {
      let count = table.entries.count { $0.record.state == state && $0.record.queue == queue }
      require(
        statistics.counts[state] ?? 0 == count,
        "the statistics count \(statistics.counts[state] ?? 0) tasks that are \(state), not \(count)"
      )
    }
  }

  /// Checks that every task that could be performed, or is claimed, is being performed.
  fileprivate func checkOrder(
    _ state: ModelRun.State,
    _ now: VirtualClock.Instant,
    _ date: Date,
    mayHaveFailed: Bool,
    hasFailed: Bool,
    claimsAhead: Bool
  ) {
    let mayRun = !state.isShutDown && !hasFailed
    for (id, entry) in entries where entry.lease != nil {
      let isLive = entry.attempt.map { $0.end == nil } ?? false
      // If the queue was paused or stopped after the claim, the task isn't performed.
      let isRunning = mayRun && state.isRunning(entry.queue)
      let isPaused = state.isPaused || isPausedInStore(entry.queue)
      let isHeldBack =
        entry.attempt == nil && (isPaused || !isRunning)
        && (!state.runs.isEmpty || state.callsInFlight > 0 || mayHaveFailed)
      // A prefetched task waits for a worker.
      let isAhead =
        entry.attempt == nil && claimsAhead && liveCounts[entry.queue] == configuration.workers
      // If the store has failed, the next run stores the task's end.
      let isUnsettled = mayHaveFailed && !isRunning && entry.attempt?.end != nil
      require(
        isLive || isHeldBack || isUnsettled || isAhead,
        "\(label(id)) is claimed, but not performed: \(entry)"
      )
    }
    guard mayRun else { return }
    var until = date
    if let (instant, earlier) = state.lastStep, instant.duration(to: now) <= .seconds(61) {
      until = min(until, earlier)
    }
    for (name, _) in state.queues where state.isRunning(name) {
      if state.isPaused || isPausedInStore(name) { continue }
      checkNoneCouldRun(in: name, state, until)
    }
  }

  private func checkNoneCouldRun(in queue: String, _ state: ModelRun.State, _ until: Date) {
    guard liveCounts[queue] ?? 0 < configuration.workers else { return }
    let hasLimited = entries.values.contains {
      $0.queue == queue && $0.claimed?.name == LimitedJob.taskName
    }
    for entry in table.waiting
    where entry.record.queue == queue && entry.record.conditions.isSubset(of: state.conditions) {
      let mayRun =
        switch entry.record.name {
        case LimitedJob.taskName: !hasLimited
        case StrayJob.taskName: state.handlesStray
        default: true
        }
      let isDue = entry.record.availableDate <= until - 1e-3
      require(!mayRun || !isDue, "\(label(entry.record.id)) could be performed, but waits")
    }
  }

  fileprivate func checkEvents() {
    for id in known {
      guard let entry = entries[id] else { continue }
      require(
        entry.hasSeenExpectedEvents,
        "\(label(id)): the events \(entry.seenEvents), expected: \(entry.expectedEvents)"
      )
    }
  }

  func checkOutcome(_ outcome: TaskOutcome, of id: TaskID) {
    require(
      entries[last(id)]?.outcomes.contains(outcome) ?? false,
      "the outcome of \(label(id)) is \(outcome), not in \(entries[last(id)]?.outcomes ?? [])"
    )
  }
}
