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
        try await storage.looking { try await rebase(to: date, isFirst: isFirst) }
      }
      if !parked.isEmpty { try await storage.looking { try await unpark(parked) } }
      if isInDoubt { try await storage.looking { try await results.endDoubt() } }
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
          dispatch.signals.timer.set(date)
        } else if claim.tasks.isEmpty {
          dispatch.signals.timer.set(now + 1)
        }
      }
      var (isAhead, tooMany) = (false, [ClaimedTask]())
      let step = dispatch.nextStep(of: worker) { machine in
        let goesOn = machine.claimed(claim, now: now, until: end)
        tooMany = machine.takeTooMany()
        isAhead = machine.isAhead
        return goesOn
      }
      dispatch.signals.claimHasEnded()
      if isAhead { dispatch.signals.claimsAhead.signal() }
      if !tooMany.isEmpty { await results.putBack(tooMany) }
      switch step {
      case .perform, .obey, .claim, .putBack: return step
      case .wait, .stop:
        if claim.tasks.isEmpty { await storage.looking { await upkeep.foundNothing() } }
      }
      // A pause may keep the claimed tasks from being begun.
      let unbegun = dispatch.machine.withLock { $0.takeHeldBack() }
      guard !unbegun.isEmpty else { return step }
      await results.putBack(unbegun)
    } catch {
      dispatch.fail(error, to: "hand out tasks")
      dispatch.machine.withLock { $0.claims.fail() }
      dispatch.signals.claimHasEnded()
    }
    return dispatch.nextStep(of: worker)
  }

  /// How many tasks a claim may hand out although fewer workers are idle.
  var claimBatch: Int {
    // A limit on starts is for tasks that begin at once. If the process ends, all that is claimed
    // counts as interrupted, and the handlers of most of it were not called.
    rateLimiting == nil && judge.maxInterruptions.allows(retryCount: 2) ? store.claimBatch : 0
  }

  /// Releases tasks that were claimed ahead and that no worker begins soon, until cancelled.
  func watchClaimsAhead() async {
    while !Task.isCancelled {
      await dispatch.signals.claimsAhead.wait()
      let claim = dispatch.machine.withLock { $0.claims.count }
      // Cancellation ends the loop. What is left then is released when the workers have ended.
      try? await time.clock.wait(for: Prefetch.longestWait)
      guard !Task.isCancelled else { return }
      await results.putBack(dispatch.machine.withLock { $0.takeOverdue(ofClaim: claim) })
      // A pause may wait for the last of them to begin.
      dispatch.signals.pauseProgress.resumeAll(with: .success(()))
    }
  }

  /// Rebases the store's tasks after the system's clock was set back, or may have been.
  ///
  /// Otherwise, what was to come after a while would wait until the clock reaches its old date.
  private func rebase(to now: Date, isFirst: Bool) async throws {
    dispatch.machine.withLock { $0.dateWentBack(to: now) }
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
      if !isFirst { try await schedules.restoreSchedules() }
    } catch {
      // The next run asks the store once more.
      upkeep.state.withLock { $0.dates.forget() }
      throw error
    }
  }

  private func unpark(_ parked: WorkMachine.ParkedNames) async throws {
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
/// Tasks are claimed first, as many as may begin by what is known. Then their starts are stored, by
/// comparing and setting the values that hold them. Only when that is done do the attempts begin.
/// If another process has changed a value, the present one is read, and tasks that it leaves no
/// room for are released. If the process ends in between, starts were counted that never were.
extension Claimer {
  /// How often the claims of one step may hand out nothing that may begin.
  private static let mostVainClaims = 100

  /// Claims tasks that may begin now, and notes when they were claimed or extended, by the queue's
  /// stopwatch.
  func claim(
    _ request: ClaimRequest,
    within limiting: RateLimiting,
    since begin: inout Duration
  ) async throws -> Claim {
    for _ in 0..<Self.mostVainClaims {
      try await readLimits(limiting)
      let now = self.now.microseconds
      let (limited, usedUpLimits) = limiting.withLimits {
        ($0.within(request, at: now), $0.usedUpLimits(at: now))
      }
      tell(usedUpLimits, limiting)
      // Nothing may begin before the date for which the timer is set now.
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
        // They are released when the run ends.
        dispatch.machine.withLock { $0.hold(tasks) }
        throw error
      }
      if !claim.tasks.isEmpty { return claim }
      if dispatch.machine.withLock({ $0.isStopping || $0.isPaused }) || Task.isCancelled { break }
    }
    // There may be tasks behind those that were put off.
    dispatch.lookForWork()
    return Claim(tasks: [], nextDate: nil)
  }

  /// Returns the occurrences whose place later ones take: no attempt is made, so no start counts.
  private func replacedOccurrences(
    among tasks: [ClaimedTask]
  ) async throws -> Set<TaskID> {
    var replaced: Set<TaskID> = []
    for task in tasks where task.record.id.isOccurrence {
      if try await occurrences.isReplaced(task.record, now: now) { replaced.insert(task.record.id) }
    }
    return replaced
  }

  /// Reads what other calls of this queue, or another queue before it, have stored.
  private func readLimits(_ limiting: RateLimiting) async throws {
    for name in limiting.withLimits({ $0.missingValues }) {
      try await storage.looking { try await readLimit(name, limiting) }
    }
  }

  private func readLimit(_ name: String, _ limiting: RateLimiting) async throws {
    let bytes = try await store.value(named: name)
    let now = self.now.microseconds
    guard limiting.withLimits({ $0.read(name, bytes, at: now) }) else { return }
    try await storage.setValue(named: name, .relaxed) { bytes in
      limiting.withLimits { $0.mend(name, bytes, at: now) }
    }
  }

  /// Stores the starts of the tasks that may begin, and gives the others back.
  ///
  /// It notes when it has extended the claims.
  ///
  /// - Returns: The tasks that may begin.
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
        // While the store was gone, nothing has extended these claims.
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
            // Those that were released, and others behind them, begin when there is room.
            tell(limiting.withLimits { $0.usedUpLimits(at: now) }, limiting)
            if isLate { begin = time }
            return begun
          }
        } catch {
          // All of it may be stored. If so, the starts count, although the tasks have not begun,
          // and those that were denied are not claimed any more: they must not begin.
          denied = admission.denials
          try await storage.waitToRepeat(after: error, &retries)
        }
        limiting.withLimits { $0.forget(admission.writes.map(\.valueName)) }
      }
    }
  }

  /// Stores what was decided.
  ///
  /// If it extends the claims of the tasks that may begin, those whose claims have run out don't.
  ///
  /// - Returns: The tasks that begin; `nil` if nothing is stored, because another process has
  ///   changed a value.
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
    limiting.withLimits { $0.stored(admission, decidedAt: now, at: date) }
    for (index, date) in admission.postponed {
      let date = Date(microseconds: date)
      await observers.catchUp(with: tasks[index].record.id)
      observers.events.post(.rescheduled(tasks[index].record.id, to: date))
      dispatch.becomesAvailable(at: date)
    }
    guard isLate else { return admitted }
    return zip(admitted, outcomes.suffix(admitted.count)).filter { $1 != .stale }.map(\.0)
  }

  /// Sets the timer for limits that are used up, and tells observers of them.
  ///
  /// They are those at the date for which it was decided what may begin: one that has room again
  /// since is looked at once more at once.
  private func tell(_ usedUpLimits: [RateLimits.UsedUp], _ limiting: RateLimiting) {
    guard !usedUpLimits.isEmpty else { return }
    for limit in usedUpLimits { dispatch.signals.timer.set(Date(microseconds: limit.until)) }
    let new = limiting.notTold(usedUpLimits)
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

  /// Pauses the limits of a task whose attempt says that it has met one.
  func pauseLimits(of record: TaskRecord, after end: AttemptEnd) async {
    guard let rateLimiting, case .threw(let error) = end,
      let snooze = error as? TaskSnoozed, snooze.scope == .rateLimit
    else { return }
    let now = self.now
    let until = now.storable(after: snooze.duration).microseconds
    do {
      for place in rateLimiting.withLimits({ $0.pausedPlaces(of: record) }) {
        try await storage.setValue(named: place.valueName, .relaxed) { bytes in
          rateLimiting.withLimits {
            $0.pausing(place, bytes, from: now.microseconds, until: until)
          }
        }
        rateLimiting.withLimits { $0.forget(CollectionOfOne(place.valueName)) }
      }
    } catch {
      dispatch.fail(error, to: "pause a rate limit")
    }
  }
}

extension WorkMachine {
  /// Takes claimed tasks that may not begin, because the run is about to end.
  mutating func hold(_ tasks: [ClaimedTask]) {
    concurrencyLimits.enter(tasks)
    ready = tasks.reversed() + ready
  }
}

/// The rate limits of a queue, and until when it was told last that each of them is used up.
final class RateLimiting: Sendable {
  /// How far the clocks of processes on one store may be apart, in microseconds: five minutes.
  ///
  /// If they have one clock, dates that are later by more than a second tell that it was set back.
  private static func tolerance(hasOneClock: Bool) -> Int64 {
    hasOneClock ? 1_000_000 : 300_000_000
  }

  /// What observers know of limits that are used up.
  private struct Told: Sendable {
    /// Until when each of the scopes is, in microseconds since 1970.
    var dates: [Int: Int64] = [:]
    var count = 0
  }

  private let state: Mutex<RateLimits>
  private let told = Mutex(Told())

  /// Returns `nil` if there are no limits.
  init?(_ limits: [RateLimit], hasOneClock: Bool) {
    guard !limits.isEmpty else { return nil }
    state = Mutex(RateLimits(limits, tolerance: Self.tolerance(hasOneClock: hasOneClock)))
  }

  func withLimits<Result>(_ body: (inout sending RateLimits) -> sending Result) -> sending Result {
    state.withLock { body(&$0) }
  }

  /// How often a limit was used up.
  var usedUpCount: Int { told.withLock { $0.count } }

  /// Returns those of the limits about which this was not called before.
  func notTold(_ usedUpLimits: [RateLimits.UsedUp]) -> [RateLimits.UsedUp] {
    guard !usedUpLimits.isEmpty else { return [] }
    return told.withLock { told in
      let new = usedUpLimits.filter { limit in
        told.dates.updateValue(limit.until, forKey: limit.scope) != limit.until
      }
      told.count += new.count
      return new
    }
  }
}

extension Date {
  /// The date in microseconds since 1970, in which rate limits count.
  var microseconds: Int64 { Int64((storable.timeIntervalSince1970 * 1e6).rounded()) }

  /// The date of a number of microseconds since 1970, as it reads after it was stored.
  init(microseconds: Int64) {
    self = Date(timeIntervalSince1970: Double(microseconds) / 1e6).storable
  }
}

/// What a queue does on a store that others use at the same time.
extension Claimer {
  /// Extends leases until the body has returned.
  ///
  /// It does so in a cancelled run, too: the run's handlers may take long to end, and no other
  /// queue may take over their tasks before that.
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

  /// Extends the leases that the queue holds at this moment.
  ///
  /// After a transient error, it extends those that the queue holds by then: while one task is
  /// locked, all calls that extend its lease may fail, and leases of later claims must not run out.
  func extendPresentLeases(for duration: Duration) async throws {
    // What could not be extended in time has run out, so the first try counts.
    let start = time.stopwatch()
    var retries = 0
    while true {
      let leases = dispatch.machine.withLock { $0.leases }
      let extensions = leases.map { TaskChange.extend($0, for: duration) }
      do {
        let results = try await extensions.isEmpty ? [] : storage.persistOnce(extensions, .relaxed)
        // An end of a task whose lease ran out is in doubt until it is stored: whose end is it?
        if !results.contains(.stale) || !dispatch.leasesMayHaveRunOut(by: start) {
          dispatch.machine.withLock { $0.leasesExtended = start }
        }
        for (lease, result) in zip(leases, results) where result == .stale { dispatch.lost(lease) }
        return
      } catch {
        try await storage.waitToRepeat(after: error, &retries)
      }
    }
  }

  /// Extends the leases of this process that may have run out, before a claim.
  ///
  /// The process may have been stopped, with the whole machine for example. A claim would take its
  /// tasks back from it, and count that as an interruption, while their handlers go on.
  func extendLateLeases() async throws {
    guard let leaseDuration = dispatch.leaseDuration else { return }
    let others = storage.group?.otherQueues.map(\.claimer) ?? []
    for queue in [self] + others where queue.dispatch.leasesMayHaveRunOut {
      try await storage.looking { try await queue.extendPresentLeases(for: leaseDuration) }
    }
  }

  /// Looks at regular intervals for tasks that other queues have added, until cancelled.
  func lookForOthersTasks(_ sharing: StoreSharing) async {
    while !Task.isCancelled {
      // Cancellation ends the loop.
      try? await time.clock.wait(for: max(sharing.pollInterval, .milliseconds(1)))
      await lookAtStore()
    }
  }

  /// Looks for the tasks of others when the store hints at them, until cancelled.
  ///
  /// In a store that is not shared, no queue has added them, but a statement of another program
  /// (``insertStatement(for:uniqueKey:options:)``).
  func follow(_ hints: AsyncStream<Void>) async {
    for await _ in hints {
      if store.sharing == nil { dispatch.lookForWork() } else { await lookAtStore() }
    }
  }

  /// Looks for what other queues on the store have changed.
  private func lookAtStore() async {
    // First, so that nothing begins that another queue has paused.
    await gate.followStoredPause()
    dispatch.lookForWork()
    await results.tellOfOthersTasks()
    do {
      try await schedules.restoreSchedulesEachHour()
    } catch {
      dispatch.fail(error, to: "look after its schedules")
    }
  }
}
