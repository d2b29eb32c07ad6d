import Synchronization

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// Claims tasks for workers.
extension TaskQueue {
  /// Claims tasks, and returns the worker's next step.
  nonisolated func claim(
    _ limit: Int,
    unparking parked: WorkMachine.ParkedNames,
    by worker: Int
  ) async -> WorkMachine.Step {
    let date = self.now
    let handled = handlers.room
    do {
      let (isFirst, wentBack, conditions, isInDoubt) = upkeep.withLock {
        let isFirst = $0.dates.isUnused
        let wentBack = $0.dates.wentBack(to: date, from: latestDate.value)
        return (isFirst, wentBack, $0.conditions.holding, $0.isInDoubt)
      }
      if wentBack {
        latestDate.reset(to: date)
        try await looking { try await rebase(to: date, isFirst: isFirst) }
      }
      if !parked.isEmpty { try await looking { try await unpark(parked) } }
      if isInDoubt { try await looking { try await endDoubt() } }
      try await extendLateLeases()
      let (now, room) = machine.withLock { machine in
        (
          machine.cutoff ?? date,
          machine.concurrencyLimits.room(in: handled.names, version: handled.version)
        )
      }
      let request = ClaimRequest(
        limit: limit,
        names: roomWithinBudget(room),
        otherNames: handled.others,
        now: now,
        conditions: conditions,
        leaseDuration: leaseDuration
      )
      // The store begins to count after this.
      var begin = request.leaseDuration == nil ? .zero : time.stopwatch()
      let claim =
        if let rateLimiting {
          try await self.claim(request, within: rateLimiting, since: &begin)
        } else {
          try await store.claim(request)
        }
      let end = request.leaseDuration.map { begin + $0 }
      if let date = claim.nextDate {
        // If a store names a date that has come but hands out nothing, ask it again a second later.
        if date > now {
          signals.timer.set(date)
        } else if claim.tasks.isEmpty {
          signals.timer.set(now + 1)
        }
      }
      var (isAhead, tooMany) = (false, [ClaimedTask]())
      let step = nextStep(of: worker) { machine in
        let goesOn = machine.claimed(claim, now: now, until: end)
        tooMany = machine.takeTooMany()
        isAhead = machine.isAhead
        return goesOn
      }
      signals.claimHasEnded()
      if isAhead { signals.claimsAhead.signal() }
      if !tooMany.isEmpty { await putBack(tooMany) }
      switch step {
      case .perform, .obey, .claim, .putBack: return step
      case .wait, .stop:
        if claim.tasks.isEmpty { await looking { await foundNothing() } }
      }
      // A pause may keep the claimed tasks from being begun.
      let unbegun = machine.withLock { $0.takeHeldBack() }
      guard !unbegun.isEmpty else { return step }
      await putBack(unbegun)
    } catch {
      fail(error, to: "hand out tasks")
      machine.withLock { $0.claims.fail() }
      signals.claimHasEnded()
    }
    return nextStep(of: worker)
  }

  /// How many tasks a claim may hand out although fewer workers are idle.
  nonisolated var claimBatch: Int {
    // A limit on starts is for tasks that begin at once. If the process ends, all that is claimed
    // counts as interrupted, and the handlers of most of it were not called.
    rateLimiting == nil && judge.maxInterruptions.allows(retryCount: 2) ? store.claimBatch : 0
  }

  /// Releases tasks that were claimed ahead and that no worker begins soon, until cancelled.
  nonisolated func watchClaimsAhead() async {
    while !Task.isCancelled {
      await signals.claimsAhead.wait()
      let claim = machine.withLock { $0.claims.count }
      // Cancellation ends the loop. What is left then is released when the workers have ended.
      try? await time.clock.wait(for: ClaimAhead.longestWait)
      guard !Task.isCancelled else { return }
      await putBack(machine.withLock { $0.takeOverdue(ofClaim: claim) })
      // A pause may wait for the last of them to begin.
      signals.pauseProgress.resumeAll(with: .success(()))
    }
  }

  /// Rebases the store's tasks after the system's clock was set back, or may have been.
  ///
  /// Otherwise, what was to come after a while would wait until the clock reaches its old date.
  private nonisolated func rebase(to now: Date, isFirst: Bool) async throws {
    machine.withLock { $0.dateWentBack(to: now) }
    let hasOneClock = store.hasOneClock
    rateLimiting?.withLimits { $0.rebase(to: now.microseconds, hasOneClock: hasOneClock) }
    // Of several clocks, this one may be slow.
    guard hasOneClock else { return }
    // A store that was just opened has made no claim by the old date. Without tasks, it has nothing
    // to rebase.
    do {
      if isFirst, try await !store.contains(TaskFilter()) { return }
      _ = try await store.apply([.rebase(now)], durability: .relaxed)
      // Schedules may have gone on by the old date. When a run begins, they are looked at anyway.
      if !isFirst { try await restoreSchedules() }
    } catch {
      // The next run asks the store once more.
      upkeep.withLock { $0.dates.forget() }
      throw error
    }
  }

  private nonisolated func unpark(_ parked: WorkMachine.ParkedNames) async throws {
    let isParked = TaskFilter(states: [.parked])
    guard try await store.contains(isParked) else { return }
    var names = Set(parked.names.map(ExactText.init))
    if parked.others, handlers.room.others > 0 { names.formUnion(try await parkedNamesOfOthers()) }
    // Only in an old file have names a NUL. Stores refuse to unpark such a name, and a queue must
    // not stop for it.
    let changes = names.map(\.text).filter { !$0.hasNUL }.sorted().map {
      TaskChange.unpark(name: $0)
    }
    guard !changes.isEmpty else { return }
    _ = try await store.apply(changes, durability: .relaxed)
  }

  /// Returns the names of parked tasks that have no handler of their own.
  private nonisolated func parkedNamesOfOthers() async throws -> Set<ExactText> {
    let filter = TaskFilter(excludedNames: Set(handlers.names), states: [.parked])
    var names: Set<ExactText> = []
    try await forEachPage(of: filter, after: nil) { page in
      names.formUnion(page.lazy.map { ExactText($0.name) })
    }
    return names
  }
}
