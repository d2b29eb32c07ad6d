import SteadfastRetry
import Synchronization
import SystemFoundation

/// Claims tasks in the store for a queue's workers, and extends the leases of claimed tasks.
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

extension Claimer {
  /// Claims tasks, and returns the worker's next step.
  func claim(
    _ limit: Int,
    unparking parked: WorkMachine.ParkedNames,
    by worker: Int
  ) async -> WorkMachine.Step {
    let date = self.now
    let handled = handlers.capacities
    do {
      let (isFirst, wentBack, conditions, outcomesAreDue, schedulesAreDue) = upkeep.state.withLock {
        let isFirst = $0.dates.isUnused
        let wentBack = $0.dates.detectStepBack(to: date, lastRead: dispatch.latestDate.value)
        return (isFirst, wentBack, $0.conditions.holding, $0.outcomesAreDue, $0.schedulesAreDue)
      }
      if wentBack {
        dispatch.latestDate.reset(to: date)
        try await storage.bestEffort { try await rebase(to: date, isFirst: isFirst) }
      }
      if !parked.isEmpty { try await storage.bestEffort { try await unparkTasks(named: parked) } }
      if outcomesAreDue { try await storage.bestEffort { try await results.lookUpDueOutcomes() } }
      if schedulesAreDue {
        try await storage.bestEffort { try await schedules.restoreSchedules() }
      }
      try await extendOverdueLeases()
      let (now, room) = dispatch.machine.withLock { machine in
        (
          machine.cutoff ?? date,
          machine.concurrencyLimits.remainingCounts(within: handled.names, version: handled.version)
        )
      }
      let request = ClaimRequest(
        limit: limit,
        names: upkeep.claimLimitsWithinBudget(room),
        otherNames: handled.others,
        versions: handled.payloadVersions,
        now: now,
        conditions: conditions,
        leaseDuration: dispatch.leaseDuration,
        holder: dispatch.leaseDuration == nil ? "" : services.holder
      )
      // Read the stopwatch before the store starts the leases, so that the queue does not rely on a
      // lease for longer than the store does.
      var leaseStart = request.leaseDuration == nil ? .zero : time.stopwatch()
      let claim =
        if let rateLimiting {
          try await self.claim(request, within: rateLimiting, updating: &leaseStart)
        } else {
          try await store.claim(request)
        }
      let end = request.leaseDuration.map { leaseStart + $0 }
      if let date = claim.nextDate {
        // If a store returns a past date but no tasks, claim again a second later.
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
        isAhead = machine.hasExcessTasks
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

  /// The maximum number of tasks in a claim; 0 if a claim must not return more tasks than there are
  /// idle workers.
  ///
  /// If the process ends, every claimed task counts as interrupted, even if its handler was never
  /// called. So this is 0 if two interruptions are enough for a task to be abandoned. It is also 0
  /// with rate limits, because most of the claimed tasks could not start soon.
  var claimBatch: Int {
    rateLimiting == nil && judge.maxInterruptions.allows(retryCount: 2) ? store.claimBatch : 0
  }

  /// Releases prefetched tasks that no worker starts soon; returns when cancelled.
  func releaseUnstartedPrefetched() async {
    while !Task.isCancelled {
      await dispatch.signals.claimsAhead.wait()
      let claim = dispatch.machine.withLock { $0.claims.count }
      // If this is cancelled, the run releases the remaining tasks after its workers have ended.
      try? await time.clock.wait(for: Prefetch.longestWait)
      guard !Task.isCancelled else { return }
      await results.releaseUnstarted(dispatch.machine.withLock { $0.takeOverdue(ofClaim: claim) })
      // A pause may be waiting for the last of these tasks to start.
      dispatch.signals.pauseProgress.resumeAll(with: .success(()))
    }
  }

  /// Moves dates of stored tasks back, after the system's clock was set back, or may have been.
  ///
  /// Otherwise, a task with a delay would wait until the corrected clock reaches the date that was
  /// calculated with the wrong clock. `isFirst` is `true` in the first claim of the queue, and in
  /// the next one if this has failed.
  private func rebase(to now: Date, isFirst: Bool) async throws {
    dispatch.machine.withLock { $0.moveCutoffBack(to: now) }
    let hasOneClock = store.hasOneClock
    rateLimiting?.withLimits { $0.rebase(to: now.microseconds, hasOneClock: hasOneClock) }
    // If processes with different clocks use the store, this process's clock may merely be slow.
    guard hasOneClock else { return }
    do {
      // Before the first claim, the clock may have been set back while no process ran. So rebase
      // the tasks, if there are any.
      if isFirst, try await !store.contains(TaskFilter()) { return }
      _ = try await store.apply([.rebase(now)], durability: .relaxed)
      // The wrong date may have moved schedules to later dates. Before the first claim, the run has
      // already checked the schedules.
      if !isFirst { try await schedules.restoreSchedules() }
    } catch {
      // The next claim counts as the first one again, and rebases the tasks.
      upkeep.state.withLock { $0.dates.reset() }
      throw error
    }
  }

  private func unparkTasks(named parked: WorkMachine.ParkedNames) async throws {
    let isParked = TaskFilter(states: [.parked])
    guard try await store.contains(isParked) else { return }
    let capacities = handlers.capacities
    var names = Set(parked.names.map(ExactText.init))
    if parked.others, capacities.others > 0 {
      names.formUnion(try await parkedNamesOfOthers())
    }
    // A store throws an error for a name with a NUL, which would stop the queue. Files of old
    // versions may contain such names, so leave them out.
    var changes = names.map(\.text).filter { !$0.hasNUL }.sorted().map {
      TaskChange.unpark(name: $0)
    }
    if parked.ofOlderVersions {
      let versions = capacities.payloadVersions.sorted { $0.key < $1.key }
      for (name, version) in versions where !names.contains(ExactText(name)) {
        changes.append(.unpark(name: name, below: version))
      }
    }
    guard !changes.isEmpty else { return }
    _ = try await store.apply(changes, durability: .relaxed)
  }

  /// Returns the names of parked tasks for which only the fallback handler is registered.
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
/// For each rate limit, the store has a value with the latest starts of tasks. A queue first claims
/// as many tasks as the values that it last read allow. Then it stores the tasks' starts in these
/// values, and only then starts the attempts. If another process has changed a value since it was
/// read, the queue reads the value again, and releases the tasks that exceed the limit. If the
/// process ends before the attempts start, the starts still count.
extension Claimer {
  /// The maximum number of claims in one step of a worker that return no task that may start.
  private static let maxEmptyClaims = 100

  /// Claims tasks that may start now.
  ///
  /// Sets `leaseStart` to the stopwatch's time at which the tasks were claimed, or at which their
  /// leases were last extended.
  func claim(
    _ request: ClaimRequest,
    within limiting: RateLimiting,
    updating leaseStart: inout Duration
  ) async throws -> Claim {
    for _ in 0..<Self.maxEmptyClaims {
      try await readLimits(limiting)
      let now = self.now.microseconds
      let (limited, usedUpLimits) = limiting.withLimits {
        ($0.requestWithinLimits(request, at: now), $0.usedUpLimits(at: now))
      }
      reportUsedUpLimits(usedUpLimits, limiting)
      // If no task may start now, don't ask the store. The timer is set for the date at which a
      // limit allows the next start.
      guard limited.limit > 0 else { return Claim(tasks: [], nextDate: nil) }
      leaseStart = time.stopwatch()
      var claim = try await store.claim(limited)
      guard !claim.tasks.isEmpty else { return claim }
      let tasks = claim.tasks
      do {
        let skipped = try await tasksWithoutAttempt(among: tasks)
        let others = skipped.isEmpty ? tasks : tasks.filter { !skipped.contains($0.record.id) }
        claim.tasks =
          others.isEmpty ? [] : try await storeStarts(of: others, limiting, updating: &leaseStart)
        claim.tasks += tasks.filter { skipped.contains($0.record.id) }
      } catch {
        dispatch.fail(error, to: "count the starts of tasks", losing: true)
        dispatch.machine.withLock { $0.keepUntilRunEnds(tasks) }
        throw error
      }
      if !claim.tasks.isEmpty { return claim }
      if dispatch.machine.withLock({ $0.isStopping || $0.isPaused }) || Task.isCancelled { break }
    }
    // The store may have more tasks than the claims have returned.
    dispatch.lookForWork()
    return Claim(tasks: [], nextDate: nil)
  }

  /// Returns which of the claimed tasks get no attempt, so that they don't count towards a rate
  /// limit: tasks with a command, and occurrences of schedules that a later occurrence replaces.
  private func tasksWithoutAttempt(
    among tasks: [ClaimedTask]
  ) async throws -> Set<TaskID> {
    var found = Set(tasks.filter { $0.record.command != nil }.map(\.record.id))
    for task in tasks where task.record.id.isOccurrence {
      if try await occurrences.isReplaced(task.record, now: now) { found.insert(task.record.id) }
    }
    return found
  }

  /// Reads the values of all rate limits whose current values are not known, after storing the
  /// limits if the queue has not done so yet.
  private func readLimits(_ limiting: RateLimiting) async throws {
    if !limiting.areLimitsStored.load(ordering: .relaxed) {
      try await storage.bestEffort { try await storeLimits() }
      limiting.areLimitsStored.store(true, ordering: .relaxed)
    }
    for name in limiting.withLimits({ $0.missingValues }) {
      try await storage.bestEffort { try await readLimit(name, limiting) }
    }
  }

  /// Stores the limits, for other processes to look at.
  private func storeLimits() async throws {
    let bytes = try StoredRateLimit.bytes(for: configuration.rateLimits)
    guard try await store.value(named: StoredRateLimit.valueName) != bytes else { return }
    try await storage.setValue(named: StoredRateLimit.valueName, .relaxed) { _ in bytes }
  }

  private func readLimit(_ name: String, _ limiting: RateLimiting) async throws {
    let bytes = try await store.value(named: name)
    let now = self.now.microseconds
    guard limiting.withLimits({ $0.cacheValue(named: name, bytes: bytes, at: now) }) else { return }
    try await storage.setValue(named: name, .relaxed) { bytes in
      limiting.withLimits { $0.mendValue(named: name, bytes: bytes, at: now) }
    }
  }

  /// Stores the starts of those claimed tasks that may start within the rate limits, and releases
  /// or postpones the others.
  ///
  /// If this extends the tasks' leases, it sets `leaseStart` to the current time.
  ///
  /// - Returns: The tasks to start.
  private func storeStarts(
    of tasks: [ClaimedTask],
    _ limiting: RateLimiting,
    updating leaseStart: inout Duration
  ) async throws -> [ClaimedTask] {
    let records = tasks.map(\.record)
    var retries = StoreRetryPolicy.Retries()
    while true {
      let now = self.now.microseconds
      switch limiting.withLimits({ $0.admit(records, at: now) }) {
      case .missing(let names):
        for name in names.sorted() { try await readLimit(name, limiting) }
      case .decided(let admission):
        // Retries may have taken long, and nothing else extends the leases of these tasks before
        // they start.
        let time = time.stopwatch()
        let isLate = dispatch.leaseDuration.map { time - leaseStart >= $0 / 3 } ?? false
        do {
          if let begun = try await store(
            admission,
            decidedAt: now,
            of: tasks,
            extendingLeases: isLate,
            limiting
          ) {
            // Set the timer, so that the released tasks start when the limits allow it.
            reportUsedUpLimits(limiting.withLimits { $0.usedUpLimits(at: now) }, limiting)
            if isLate { leaseStart = time }
            return begun
          }
        } catch {
          // Decide again, because other tasks may begin by the time the store is available.
          try await storage.waitToRetry(after: error, &retries)
        }
        limiting.withLimits { $0.forgetValues(named: admission.writes.map(\.valueName)) }
      }
    }
  }

  /// Stores which of the claimed tasks start, are released, or are postponed.
  ///
  /// If `extendsLeases`, this also extends the leases of the tasks that start. A task whose lease
  /// has expired by then does not start.
  ///
  /// - Returns: The tasks to start; `nil` if nothing was stored, because another process has
  ///   changed the value of a rate limit.
  private func store(
    _ admission: RateLimits.Admission,
    decidedAt now: Int64,
    of tasks: [ClaimedTask],
    extendingLeases extendsLeases: Bool,
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
    if extendsLeases, let leaseDuration = dispatch.leaseDuration {
      changes += admitted.map { .extend($0.lease, for: leaseDuration) }
    }
    let outcomes = changes.isEmpty ? [] : try await storage.persistOnce(changes, .relaxed)
    if outcomes.contains(.valueDiffers) { return nil }
    let date = self.now.microseconds
    limiting.withLimits { $0.recordWrites(of: admission, decidedAt: now, at: date) }
    let ends = outcomes.dropFirst(admission.writes.count)
    // Another process has stored a command for these tasks, which are still claimed.
    let commanded = zip(admission.released + admission.postponed.map(\.0), ends).compactMap {
      index,
      outcome -> ClaimedTask? in
      guard case .commanded(let command) = outcome else { return nil }
      var task = tasks[index]
      task.record.command = command
      return task
    }
    for ((index, date), outcome) in zip(
      admission.postponed,
      ends.dropFirst(admission.released.count)
    ) where outcome.isDone {
      let date = Date(microseconds: date)
      await observers.waitForEarlierReports(of: tasks[index].record.id)
      observers.events.post(.rescheduled(tasks[index].record.id, to: date))
      dispatch.lookForWork(at: date)
    }
    guard extendsLeases else { return admitted + commanded }
    return zip(admitted, outcomes.suffix(admitted.count)).filter { $1 != .stale }.map(\.0)
      + commanded
  }

  /// Sets the timer for the dates at which used-up rate limits allow starts again, and posts an
  /// event for each limit that was not reported before.
  private func reportUsedUpLimits(_ usedUpLimits: [RateLimits.UsedUp], _ limiting: RateLimiting) {
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

  /// If the handler has thrown ``TaskSnoozed`` with the scope `rateLimit`, lets the rate limits of
  /// its task allow no start for the requested time.
  func pauseLimits(of record: TaskRecord, after end: AttemptEnd) async {
    guard let rateLimiting, case .threw(let error) = end,
      let snooze = error as? TaskSnoozed, snooze.scope == .rateLimit
    else { return }
    let now = self.now
    let until = now.storableDate(after: snooze.duration).microseconds
    do {
      for place in rateLimiting.withLimits({ $0.historiesToPause(for: record) }) {
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
  /// Adds claimed tasks that must not start, and that the run releases when it ends.
  mutating func keepUntilRunEnds(_ tasks: [ClaimedTask]) {
    concurrencyLimits.addLeased(tasks)
    ready = tasks.reversed() + ready
  }
}

/// The rate limits of a queue, behind a lock, and which of them were reported as used up.
final class RateLimiting: Sendable {
  private struct Reported: Sendable {
    /// For each used-up limit, by its index in ``RateLimits/scopes``: the date that was last
    /// reported, before which the limit allows no start, in microseconds since 1970.
    var dates: [Int: Int64] = [:]
    /// The number of reports.
    var count = 0
  }

  private let state: Mutex<RateLimits>
  private let reported = Mutex(Reported())
  /// Whether the queue has stored its limits.
  let areLimitsStored = Atomic(false)

  /// Returns `nil` if there are no limits.
  init?(_ limits: [RateLimit], hasOneClock: Bool) {
    guard !limits.isEmpty else { return nil }
    state = Mutex(RateLimits(limits, tolerance: RateLimits.tolerance(hasOneClock: hasOneClock)))
  }

  func withLimits<Result>(_ body: (inout sending RateLimits) -> sending Result) -> sending Result {
    state.withLock { body(&$0) }
  }

  /// The number of times that a limit was used up.
  var usedUpCount: Int { reported.withLock { $0.count } }

  /// Returns the used-up limits that were not reported before with the same date, and marks them as
  /// reported.
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

/// Sharing a store with other queues.
extension Claimer {
  /// Performs the body, and extends the leases of the queue's tasks until the body returns.
  ///
  /// If the run is cancelled, this still extends the leases, because no other queue may claim the
  /// tasks before their handlers have ended. It uses a thread that no handler can occupy.
  func withExtendedLeases(_ sharing: StoreSharing, _ body: () async -> Void) async {
    let executor = time.deadlineExecutor ?? RealWork.taskExecutor
    let extending = Task(executorPreference: executor) {
      await self.extendLeases(sharing)
    }
    await body()
    extending.cancel()
    await extending.value
  }

  private func extendLeases(_ sharing: StoreSharing) async {
    while !Task.isCancelled {
      try? await time.wait(for: max(sharing.leaseDuration / 3, .milliseconds(1)))
      guard let duration = dispatch.leaseDuration, !Task.isCancelled else { continue }
      do {
        try await extendCurrentLeases(for: duration)
      } catch {
        dispatch.fail(error, to: "extend its claims")
      }
    }
  }

  /// Extends the leases of all tasks that the queue currently has, in one call of the store.
  ///
  /// If the call throws a transient error, it is retried with the leases that the queue has by
  /// then. Tries may fail for long, for example while a task is locked in the store.
  func extendCurrentLeases(for duration: Duration) async throws {
    // A lease that expired between two tries stays expired. So measure from the first try.
    let start = time.stopwatch()
    var retries = StoreRetryPolicy.Retries()
    while true {
      let leases = dispatch.machine.withLock { $0.leases }
      let extensions = leases.map { TaskChange.extend($0, for: duration) }
      do {
        let results = try await extensions.isEmpty ? [] : storage.persistOnce(extensions, .relaxed)
        // A stale lease may have expired, and another queue may have ended its task. Then leave
        // `leasesExtended` as it is, so that `leasesMayHaveExpired` stays true until a later call
        // extends all leases.
        if !results.contains(.stale) || !dispatch.leasesMayHaveExpired(by: start) {
          dispatch.machine.withLock { $0.leasesExtended = start }
        }
        for (lease, result) in zip(leases, results) where result == .stale {
          dispatch.handleLostLease(lease)
        }
        return
      } catch {
        try await storage.waitToRetry(after: error, &retries)
      }
    }
  }

  /// Extends leases of this process that may have expired; call it before a claim.
  ///
  /// If the process was suspended, for example because the machine slept, leases may have expired
  /// while their handlers still run. A claim would return the tasks of these handlers again, and
  /// count an interruption.
  func extendOverdueLeases() async throws {
    guard let leaseDuration = dispatch.leaseDuration else { return }
    let others = storage.group?.otherQueues.map(\.claimer) ?? []
    for queue in [self] + others where queue.dispatch.leasesMayHaveExpired {
      try await storage.bestEffort { try await queue.extendCurrentLeases(for: leaseDuration) }
    }
  }

  /// Checks the shared store at regular intervals for changes by other queues; returns when
  /// cancelled.
  func pollSharedStore(_ sharing: StoreSharing) async {
    while !Task.isCancelled {
      try? await time.clock.wait(for: max(sharing.pollInterval, .milliseconds(1)))
      // An older version of the program may have parked tasks since the run began.
      dispatch.machine.withLock { $0.toUnpark.ofOlderVersions = true }
      await checkStoreForChanges()
    }
  }

  /// Checks the store whenever it signals that it may have changed; returns when cancelled.
  ///
  /// Even if no other queue uses the store, another program may add tasks
  /// (``insertStatement(for:uniqueKey:options:)``).
  func followHints(_ hints: AsyncStream<Void>) async {
    for await _ in hints {
      if store.sharing == nil { dispatch.lookForWork() } else { await checkStoreForChanges() }
    }
  }

  private func checkStoreForChanges() async {
    // Do this first, so that no task starts that another process has paused.
    await gate.followStoredPause()
    dispatch.lookForWork()
    await results.refreshAwaitedOutcomes()
    await takeStoredCommands()
    do {
      try await schedules.restoreSchedulesEachMinute()
    } catch {
      dispatch.fail(error, to: "update its schedules")
    }
  }

  /// Looks for commands of other processes as often as claims are extended, even if the store gives
  /// no hints and the polls are rare; returns when cancelled.
  ///
  /// The extensions themselves don't wait for this look-up.
  func followCommands(_ sharing: StoreSharing) async {
    let interval = max(sharing.leaseDuration / 3, .milliseconds(1))
    while !Task.isCancelled {
      try? await time.wait(for: interval)
      await takeStoredCommands()
    }
  }

  /// Looks up the commands that other processes have stored for this queue's tasks, and cancels the
  /// attempts that they end; if the store fails, stops the run.
  private func takeStoredCommands() async {
    guard dispatch.machine.withLock({ $0.performing > 0 || !$0.ready.isEmpty }) else { return }
    let (filter, limit) = (TaskFilter(states: [.running], hasCommand: true), 500)
    var page: [TaskRecord] = []
    repeat {
      do {
        page = try await store.tasks(matching: filter, after: page.last?.id, limit: limit)
      } catch {
        return dispatch.fail(error, to: "read the commands for its tasks")
      }
      for record in page { results.interrupt(record.id, by: record.command) }
    } while page.count == limit
  }
}
