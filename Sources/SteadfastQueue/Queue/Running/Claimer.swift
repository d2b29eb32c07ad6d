import SteadfastRetry
import Synchronization
import SystemFoundation

/// Claims tasks for workers, and extends the claims.
final class Claimer: QueuePart {
  let services: QueueServices
  let upkeep: Upkeep
  let occurrences: Occurrences
  let results: Results
  let schedules: Schedules
  let gate: StartGate

  init(_ gate: StartGate, _ schedules: Schedules) {
    services = gate.services
    upkeep = gate.upkeep
    results = gate.results
    self.gate = gate
    self.schedules = schedules
    occurrences = schedules.occurrences
  }
}

/// Claims tasks for workers.
extension Claimer {
  /// Claims tasks, and returns the worker's next step.
  func claim(
    _ limit: Int,
    unparking parked: WorkMachine.ParkedNames,
    by worker: Int
  ) async -> WorkMachine.Step {
    let date = self.now
    let handled = handlers.room
    do {
      let (isFirst, wentBack, conditions, isInDoubt) = upkeep.state.withLock {
        let isFirst = $0.dates.isUnused
        let wentBack = $0.dates.wentBack(to: date, from: dispatch.latestDate.value)
        return (isFirst, wentBack, $0.conditions.holding, $0.isInDoubt)
      }
      if wentBack {
        dispatch.latestDate.reset(to: date)
        try await storage.bestEffort { try await rebase(to: date, isFirst: isFirst) }
      }
      if !parked.isEmpty { try await storage.bestEffort { try await unparkTasks(named: parked) } }
      if isInDoubt { try await storage.bestEffort { try await results.reconcileOutcomes() } }
      try await extendLateLeases()
      let (now, room) = dispatch.machine.withLock { machine in
        (
          machine.cutoff ?? date,
          machine.concurrencyLimits.room(in: handled.names, version: handled.version)
        )
      }
      let request = ClaimRequest(
        limit: limit,
        names: upkeep.roomWithinBudget(room),
        otherNames: handled.others,
        now: now,
        conditions: conditions,
        leaseDuration: dispatch.leaseDuration
      )
      // Read the stopwatch before the store starts the leases, so that the queue never believes
      // that a lease lasts longer than it does.
      var begin = request.leaseDuration == nil ? .zero : time.stopwatch()
      let claim =
        if let rateLimiting {
          try await self.claim(request, within: rateLimiting, since: &begin)
        } else {
          try await store.claim(request)
        }
      let end = request.leaseDuration.map { begin + $0 }
      if let date = claim.nextDate {
        // If a store returns a past date but no tasks, ask it again a second later.
        if date > now {
          dispatch.signals.timer.set(date)
        } else if claim.tasks.isEmpty {
          dispatch.signals.timer.set(now + 1)
        }
      }
      var (isAhead, tooMany) = (false, [ClaimedTask]())
      let step = dispatch.nextStep(of: worker) { machine in
        let goesOn = machine.receive(claim, now: now, until: end)
        tooMany = machine.takeExcessPrefetched()
        isAhead = machine.isAhead
        return goesOn
      }
      dispatch.signals.notifyOfClaimEnd()
      if isAhead { dispatch.signals.claimsAhead.signal() }
      if !tooMany.isEmpty { await results.releaseUnstarted(tooMany) }
      switch step {
      case .perform, .carryOut, .claim, .requeue: return step
      case .wait, .stop:
        if claim.tasks.isEmpty {
          await storage.bestEffort { await upkeep.reportUnhandledTasksIfDue() }
        }
      }
      // A pause may prevent the claimed tasks from starting.
      let unstarted = dispatch.machine.withLock { $0.takeUnstartedDuringPause() }
      guard !unstarted.isEmpty else { return step }
      await results.releaseUnstarted(unstarted)
    } catch {
      dispatch.fail(error, to: "hand out tasks")
      dispatch.machine.withLock { $0.claims.fail() }
      dispatch.signals.notifyOfClaimEnd()
    }
    return dispatch.nextStep(of: worker)
  }

  /// The number of tasks that a claim may return even if fewer workers are idle.
  var claimBatch: Int {
    // With rate limits, claim only tasks that can start at once. If the process ends, every claimed
    // task counts as interrupted, although most of their handlers were never called.
    rateLimiting == nil && judge.maxInterruptions.allows(retryCount: 2) ? store.claimBatch : 0
  }

  /// Releases prefetched tasks that no worker starts soon, until cancelled.
  func releaseUnstartedPrefetched() async {
    while !Task.isCancelled {
      await dispatch.signals.claimsAhead.wait()
      let claim = dispatch.machine.withLock { $0.claims.count }
      // Cancellation ends the loop. The remaining tasks are released after the workers have ended.
      try? await time.clock.wait(for: Prefetch.longestWait)
      guard !Task.isCancelled else { return }
      await results.releaseUnstarted(dispatch.machine.withLock { $0.takeOverdue(ofClaim: claim) })
      // A pause may be waiting for the last of these tasks to start.
      dispatch.signals.pauseProgress.resumeAll(with: .success(()))
    }
  }

  /// Rebases the store's tasks after the system's clock was set back, or may have been.
  ///
  /// Otherwise, a task with a delay would wait until the corrected clock reaches the date that was
  /// calculated with the wrong clock.
  private func rebase(to now: Date, isFirst: Bool) async throws {
    dispatch.machine.withLock { $0.moveCutoffBack(to: now) }
    let hasOneClock = store.hasOneClock
    rateLimiting?.withLimits { $0.rebase(to: now.microseconds, hasOneClock: hasOneClock) }
    // If the store is used with several clocks, this process's clock may merely be behind.
    guard hasOneClock else { return }
    // The first claim can't know whether the clock was set back. If the store is empty, there is
    // nothing to rebase.
    do {
      if isFirst, try await !store.contains(TaskFilter()) { return }
      _ = try await store.apply([.rebase(now)], durability: .relaxed)
      // Schedules may have advanced because of the clock's wrong date. Before the first claim, the
      // run has already checked the schedules.
      if !isFirst { try await schedules.restoreSchedules() }
    } catch {
      // The next claim counts as the first one again, and rebases the tasks.
      upkeep.state.withLock { $0.dates.forget() }
      throw error
    }
  }

  private func unparkTasks(named parked: WorkMachine.ParkedNames) async throws {
    let isParked = TaskFilter(states: [.parked])
    guard try await store.contains(isParked) else { return }
    var names = Set(parked.names.map(ExactText.init))
    if parked.others, handlers.room.others > 0 { names.formUnion(try await parkedNamesOfOthers()) }
    // Only old files contain names with a NUL. Stores refuse to unpark such a name, and the error
    // would stop the queue. So leave these names out.
    let changes = names.map(\.text).filter { !$0.hasNUL }.sorted().map {
      TaskChange.unpark(name: $0)
    }
    guard !changes.isEmpty else { return }
    _ = try await store.apply(changes, durability: .relaxed)
  }

  /// Returns the names of parked tasks that have no handler of their own.
  private func parkedNamesOfOthers() async throws -> Set<ExactText> {
    let filter = TaskFilter(excludedNames: Set(handlers.names), states: [.parked])
    var names: Set<ExactText> = []
    try await forEachPage(of: filter, after: nil) { page in
      names.formUnion(page.lazy.map { ExactText($0.name) })
    }
    return names
  }
}

/// Claims within the queue's rate limits.
///
/// A claim first fetches as many tasks as the known limits allow. Then the queue stores their
/// starts by comparing and setting the limits' values, and only then starts the attempts. If
/// another process has changed a value, the queue reads the value again and releases the tasks that
/// exceed the limit. If the process ends before the attempts start, the starts still count.
extension Claimer {
  /// The maximum number of claims in one step that yield no task to start.
  private static let maxEmptyClaims = 100

  /// Claims tasks that may start now.
  ///
  /// Sets `begin` to the stopwatch's time at which the tasks were claimed or their claims last
  /// extended.
  func claim(
    _ request: ClaimRequest,
    within limiting: RateLimiting,
    since begin: inout Duration
  ) async throws -> Claim {
    for _ in 0..<Self.maxEmptyClaims {
      try await readLimits(limiting)
      let now = self.now.microseconds
      let (limited, usedUpLimits) = limiting.withLimits {
        ($0.requestWithinLimits(request, at: now), $0.usedUpLimits(at: now))
      }
      reportUsedUp(usedUpLimits, limiting)
      // No task may start before the limits have capacity again; the timer is set for that date.
      guard limited.limit > 0 else { return Claim(tasks: [], nextDate: nil) }
      begin = time.stopwatch()
      var claim = try await store.claim(limited)
      guard !claim.tasks.isEmpty else { return claim }
      let tasks = claim.tasks
      do {
        let replaced = try await replacedOccurrences(among: tasks)
        let others = replaced.isEmpty ? tasks : tasks.filter { !replaced.contains($0.record.id) }
        claim.tasks = others.isEmpty ? [] : try await admit(others, limiting, since: &begin)
        claim.tasks += tasks.filter { replaced.contains($0.record.id) }
      } catch {
        dispatch.fail(error, to: "count the starts of tasks", losing: true)
        // At its end, the run releases these tasks.
        dispatch.machine.withLock { $0.keepUntilRunEnds(tasks) }
        throw error
      }
      if !claim.tasks.isEmpty { return claim }
      if dispatch.machine.withLock({ $0.isStopping || $0.isPaused }) || Task.isCancelled { break }
    }
    // More tasks may follow the postponed ones.
    dispatch.lookForWork()
    return Claim(tasks: [], nextDate: nil)
  }

  /// Returns the claimed occurrences that later occurrences replace.
  ///
  /// These get no attempt, so they don't count towards a rate limit.
  private func replacedOccurrences(
    among tasks: [ClaimedTask]
  ) async throws -> Set<TaskID> {
    var replaced: Set<TaskID> = []
    for task in tasks where task.record.id.isOccurrence {
      if try await occurrences.isReplaced(task.record, now: now) { replaced.insert(task.record.id) }
    }
    return replaced
  }

  /// Reads the stored values of limits that are not known yet, as another call or an earlier queue
  /// left them.
  private func readLimits(_ limiting: RateLimiting) async throws {
    for name in limiting.withLimits({ $0.missingValues }) {
      try await storage.bestEffort { try await readLimit(name, limiting) }
    }
  }

  private func readLimit(_ name: String, _ limiting: RateLimiting) async throws {
    let bytes = try await store.value(named: name)
    let now = self.now.microseconds
    guard limiting.withLimits({ $0.cacheValue(named: name, bytes: bytes, at: now) }) else { return }
    try await storage.setValue(named: name, .relaxed) { bytes in
      limiting.withLimits { $0.mendValue(named: name, bytes: bytes, at: now) }
    }
  }

  /// Stores the starts of the tasks that may start, and releases or postpones the others.
  ///
  /// If it extends the claims, it updates `begin`.
  ///
  /// - Returns: The tasks to start.
  private func admit(
    _ tasks: [ClaimedTask],
    _ limiting: RateLimiting,
    since begin: inout Duration
  ) async throws -> [ClaimedTask] {
    let records = tasks.map(\.record)
    var retries = 0
    var denied: RateLimits.Denials = [:]
    while true {
      let now = self.now.microseconds
      switch limiting.withLimits({ [denied] in $0.admit(records, at: now, denied: denied) }) {
      case .missing(let names):
        for name in names.sorted() { try await readLimit(name, limiting) }
      case .decided(let admission):
        // While the store was unavailable, nothing extended these claims.
        let time = time.stopwatch()
        let isLate = dispatch.leaseDuration.map { time - begin >= $0 / 3 } ?? false
        do {
          if let begun = try await store(
            admission,
            decidedAt: now,
            of: tasks,
            extending: isLate,
            limiting
          ) {
            // The released tasks, and others behind them, start when the limits have capacity
            // again.
            reportUsedUp(limiting.withLimits { $0.usedUpLimits(at: now) }, limiting)
            if isLate { begin = time }
            return begun
          }
        } catch {
          // The store may have stored the changes. If so, the starts count although no task has
          // started, and the denied tasks are no longer claimed. So deny these tasks again.
          denied = admission.denials
          try await storage.waitToRepeat(after: error, &retries)
        }
        limiting.withLimits { $0.forgetValues(named: admission.writes.map(\.valueName)) }
      }
    }
  }

  /// Stores a decision about claimed tasks.
  ///
  /// If `isLate`, it also extends the claims of the admitted tasks. A task whose claim has expired
  /// does not start.
  ///
  /// - Returns: The tasks to start; `nil` if nothing was stored, because another process changed a
  ///   value.
  private func store(
    _ admission: RateLimits.Admission,
    decidedAt now: Int64,
    of tasks: [ClaimedTask],
    extending isLate: Bool,
    _ limiting: RateLimiting
  ) async throws -> [ClaimedTask]? {
    var changes = admission.writes.map {
      TaskChange.setValue(named: $0.valueName, from: $0.old, to: $0.new)
    }
    changes += admission.released.map { .release(tasks[$0].lease) }
    changes += admission.postponed.map { index, date in
      .reschedule(
        .claimed(tasks[index].lease),
        availableDate: Date(microseconds: date),
        countedFrom: Date(microseconds: now)
      )
    }
    let admitted = admission.admitted.map { tasks[$0] }
    if isLate, let leaseDuration = dispatch.leaseDuration {
      changes += admitted.map { .extend($0.lease, for: leaseDuration) }
    }
    let outcomes = changes.isEmpty ? [] : try await storage.persist(changes, .relaxed)
    if outcomes.contains(.valueDiffers) { return nil }
    let date = self.now.microseconds
    limiting.withLimits { $0.recordWrites(of: admission, decidedAt: now, at: date) }
    for (index, date) in admission.postponed {
      let date = Date(microseconds: date)
      await observers.waitForEarlierReports(of: tasks[index].record.id)
      observers.events.post(.rescheduled(tasks[index].record.id, to: date))
      dispatch.becomesAvailable(at: date)
    }
    guard isLate else { return admitted }
    return zip(admitted, outcomes.suffix(admitted.count)).filter { $1 != .stale }.map(\.0)
  }

  /// Sets the timer for limits that are used up, and reports those limits to observers that were
  /// not reported before.
  ///
  /// The limits were used up at the date of the decision. If one of them has capacity again by now,
  /// the timer rings at once.
  private func reportUsedUp(_ usedUpLimits: [RateLimits.UsedUp], _ limiting: RateLimiting) {
    guard !usedUpLimits.isEmpty else { return }
    for limit in usedUpLimits { dispatch.signals.timer.set(Date(microseconds: limit.until)) }
    let new = limiting.takeUnreported(usedUpLimits)
    guard observers.events.isObserved, !new.isEmpty else { return }
    let scopes = limiting.withLimits { $0.scopes }
    for limit in new {
      observers.events.post(
        .rateLimited(
          scopes[limit.scope].description,
          until: Date(microseconds: limit.until)
        )
      )
    }
  }

  /// Pauses the rate limits of a task whose handler has thrown ``TaskSnoozed`` for them.
  func pauseLimits(of record: TaskRecord, after end: AttemptEnd) async {
    guard let rateLimiting, case .threw(let error) = end,
      let snooze = error as? TaskSnoozed, snooze.scope == .rateLimit
    else { return }
    let now = self.now
    let until = now.storableDate(after: snooze.duration).microseconds
    do {
      for place in rateLimiting.withLimits({ $0.placesToPause(for: record) }) {
        try await storage.setValue(named: place.valueName, .relaxed) { bytes in
          rateLimiting.withLimits {
            $0.valueAfterPausing(place, in: bytes, from: now.microseconds, until: until)
          }
        }
        rateLimiting.withLimits { $0.forgetValues(named: CollectionOfOne(place.valueName)) }
      }
    } catch {
      dispatch.fail(error, to: "pause a rate limit")
    }
  }
}

extension WorkMachine {
  /// Adds claimed tasks that must not start, because the run is about to end.
  mutating func keepUntilRunEnds(_ tasks: [ClaimedTask]) {
    concurrencyLimits.addLeased(tasks)
    ready = tasks.reversed() + ready
  }
}

/// The rate limits of a queue, and the dates, last reported to observers, until which they are used
/// up.
final class RateLimiting: Sendable {
  /// The maximum difference, in microseconds, between the clocks of processes that share a store:
  /// five minutes.
  ///
  /// If the processes share one clock, a date that is more than a second ahead shows that the clock
  /// was set back.
  private static func tolerance(hasOneClock: Bool) -> Int64 {
    hasOneClock ? 1_000_000 : 300_000_000
  }

  /// The used-up limits that were reported to observers.
  private struct Reported: Sendable {
    /// For each scope, by its index in ``RateLimits/scopes``: the date last reported, before which
    /// its limit allows no start, in microseconds since 1970.
    var dates: [Int: Int64] = [:]
    var count = 0
  }

  private let state: Mutex<RateLimits>
  private let reported = Mutex(Reported())

  /// Returns `nil` if there are no limits.
  init?(_ limits: [RateLimit], hasOneClock: Bool) {
    guard !limits.isEmpty else { return nil }
    state = Mutex(RateLimits(limits, tolerance: Self.tolerance(hasOneClock: hasOneClock)))
  }

  func withLimits<Result>(_ body: (inout sending RateLimits) -> sending Result) -> sending Result {
    state.withLock { body(&$0) }
  }

  /// The number of times that a limit was used up.
  var usedUpCount: Int { reported.withLock { $0.count } }

  /// Returns the limits that were not passed to an earlier call with the same date.
  func takeUnreported(_ usedUpLimits: [RateLimits.UsedUp]) -> [RateLimits.UsedUp] {
    guard !usedUpLimits.isEmpty else { return [] }
    return reported.withLock { reported in
      let new = usedUpLimits.filter { limit in
        reported.dates.updateValue(limit.until, forKey: limit.scope) != limit.until
      }
      reported.count += new.count
      return new
    }
  }
}

extension Date {
  /// The date in microseconds since 1970, the unit of rate limits.
  var microseconds: Int64 { Int64((storable.timeIntervalSince1970 * 1e6).rounded()) }

  /// Creates a date from microseconds since 1970, with the precision of stored dates.
  init(microseconds: Int64) {
    self = Date(timeIntervalSince1970: Double(microseconds) / 1e6).storable
  }
}

/// Sharing a store with other queues.
extension Claimer {
  /// Extends leases until the body returns, on a thread that no handler can occupy.
  ///
  /// It continues in a cancelled run: the handlers may take long to end, and no other queue may
  /// take over their tasks before they have ended.
  func extendingLeases(_ sharing: StoreSharing, while body: () async -> Void) async {
    let executor = time.deadlineExecutor ?? RealWork.taskExecutor
    let extending = Task(executorPreference: executor) {
      await self.extendLeases(sharing)
    }
    await body()
    extending.cancel()
    await extending.value
  }

  /// Extends the leases of the queue's tasks, until cancelled.
  private func extendLeases(_ sharing: StoreSharing) async {
    while !Task.isCancelled {
      // Cancellation ends the loop.
      try? await time.wait(for: max(sharing.leaseDuration / 3, .milliseconds(1)))
      guard let duration = dispatch.leaseDuration, !Task.isCancelled else { continue }
      do {
        try await extendPresentLeases(for: duration)
      } catch {
        dispatch.fail(error, to: "extend its claims")
      }
    }
  }

  /// Extends the queue's current leases.
  ///
  /// After a transient error, the retry extends the leases that are current at that time. While one
  /// task is locked in the store, each call that extends this task's lease may fail, but the leases
  /// of later claims must not expire.
  func extendPresentLeases(for duration: Duration) async throws {
    // Measure from the first try: a lease that was not extended in time has expired.
    let start = time.stopwatch()
    var retries = 0
    while true {
      let leases = dispatch.machine.withLock { $0.leases }
      let extensions = leases.map { TaskChange.extend($0, for: duration) }
      do {
        let results = try await extensions.isEmpty ? [] : storage.persistOnce(extensions, .relaxed)
        // If a lease may have expired, don't change `leasesExtended`: another queue may have ended
        // the task. So ends of attempts count as uncertain until a later call extends all leases.
        if !results.contains(.stale) || !dispatch.leasesMayHaveRunOut(by: start) {
          dispatch.machine.withLock { $0.leasesExtended = start }
        }
        for (lease, result) in zip(leases, results) where result == .stale {
          dispatch.handleLostLease(lease)
        }
        return
      } catch {
        try await storage.waitToRepeat(after: error, &retries)
      }
    }
  }

  /// Before a claim, extends this process's leases that may have expired.
  ///
  /// The process may have been suspended, for example with the whole machine. Then a claim would
  /// take its tasks away and count an interruption, while their handlers still run.
  func extendLateLeases() async throws {
    guard let leaseDuration = dispatch.leaseDuration else { return }
    let others = storage.group?.otherQueues.map(\.claimer) ?? []
    for queue in [self] + others where queue.dispatch.leasesMayHaveRunOut {
      try await storage.bestEffort { try await queue.extendPresentLeases(for: leaseDuration) }
    }
  }

  /// Looks for tasks of other queues at regular intervals, until cancelled.
  func lookForOthersTasks(_ sharing: StoreSharing) async {
    while !Task.isCancelled {
      // Cancellation ends the loop.
      try? await time.clock.wait(for: max(sharing.pollInterval, .milliseconds(1)))
      await checkStoreForChanges()
    }
  }

  /// Looks for new tasks whenever the store hints at some, until cancelled.
  ///
  /// In a store that is not shared, no other queue adds tasks, but another program may
  /// (``insertStatement(for:uniqueKey:options:)``).
  func followHints(_ hints: AsyncStream<Void>) async {
    for await _ in hints {
      if store.sharing == nil { dispatch.lookForWork() } else { await checkStoreForChanges() }
    }
  }

  /// Checks the store for changes by other queues.
  private func checkStoreForChanges() async {
    // Do this first, so that no task starts that another queue has paused.
    await gate.followStoredPause()
    dispatch.lookForWork()
    await results.refreshAwaitedOutcomes()
    do {
      try await schedules.restoreSchedulesEachHour()
    } catch {
      dispatch.fail(error, to: "update its schedules")
    }
  }
}
