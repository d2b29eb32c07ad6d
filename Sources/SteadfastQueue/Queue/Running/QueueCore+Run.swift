import SteadfastRetry
import Synchronization
import SystemFoundation

extension QueueCore {
  /// Performs the tasks that are available at the time of the call, and returns the number of
  /// attempts.
  func runPass(within budget: RunBudget? = nil) async throws -> Int {
    let cutoff = dispatch.machine.withLock { $0.nextCutoff(now: now) }
    return try await run(.pass(cutoff: cutoff), within: budget)
  }

  /// Performs tasks until the mode ends the run, and returns the number of attempts.
  @discardableResult
  func run(
    _ mode: WorkMachine.Mode,
    within budget: RunBudget? = nil
  ) async throws -> Int {
    try await StoreRetryPolicy.$isOfRun.withValue(true) { try await runWithPatience(mode, budget) }
  }

  /// Performs tasks, in a Swift task that waits for the store without a limit.
  private func runWithPatience(_ mode: WorkMachine.Mode, _ budget: RunBudget?) async throws -> Int {
    // A run with a budget has already opened the store, within that budget.
    if budget == nil {
      try checkCanRun()
      try await openStoreUnlessShutDown { try await store.open() }
    }
    let use = store.useIfKnown
    let claimBatch = budget == nil ? claimer.claimBatch : 0
    guard try beginRunUnlessShutDown(mode, use, claimBatch: claimBatch) else { return 0 }
    if let budget { upkeep.state.withLock { $0.budget = budget } }
    dispatch.updateRetryPolicy()
    await withTaskCancellationHandler {
      await withTimeLimits(budget) {
        await prepareRun()
        await RealWork.reportingWait({ _ in self.whyRunGoesOn }) { await runWorkers(mode) }
        if budget != nil { await storeRunTimes() }
      }
    } onCancel: {
      storage.setWaiting(false)
    }
    let (failure, wasCancelled, hasEnded, attemptCount) = dispatch.machine.withLock { machine in
      machine.end()
      // End the use of the store before callers learn that the run has ended: they may run another
      // queue on the store at once.
      use?.endRun()
      return (machine.failure, machine.wasCancelled, machine.hasEnded, machine.attemptCount)
    }
    dispatch.updateRetryPolicy()
    storage.setWaiting(true)
    dispatch.signals.notifyOfRunEnd()
    if hasEnded { finishShutDown() }
    if let failure { throw failure }
    if wasCancelled { throw CancellationError() }
    return attemptCount
  }

  func checkCanRun() throws {
    try RealWork.checkRun(of: name, on: time.clock)
    try checkCanOpen()
    try dispatch.machine.withLock { machine throws(TaskQueueError) in
      try machine.checkCanBegin()
    }
  }

  /// Begins a run, and returns whether it has begun: not if the queue was shut down while the store
  /// was being opened.
  private func beginRunUnlessShutDown(
    _ mode: WorkMachine.Mode,
    _ use: (any StoreUse)?,
    claimBatch: Int
  ) throws -> Bool {
    let names = handlers.names
    return try dispatch.machine.withLock { machine in
      if machine.isShutDown { return false }
      try machine.checkCanBegin()
      try use?.beginRun(ofQueue: name, on: store)
      machine.begin(mode, names: names, claimBatch: claimBatch)
      dispatch.signals.isPassing.store(mode != .untilStopped, ordering: .sequentiallyConsistent)
      return true
    }
  }

  /// Calls a closure that opens the store, and returns its result.
  ///
  /// Returns `nil` instead of throwing if the queue was shut down: it performs no tasks then, so it
  /// doesn't need the store.
  func openStoreUnlessShutDown<Result>(
    _ body: () async throws -> Result?
  ) async throws -> Result? {
    dispatch.machine.withLock { $0.lastFailure = nil }
    do {
      return try await body()
    } catch {
      if dispatch.machine.withLock({ $0.isShutDown }) { return nil }
      if error.isTransientFailure { try Task.checkCancellation() }
      if !(error is CancellationError) { dispatch.machine.withLock { $0.lastFailure = error } }
      throw error
    }
  }

  /// Performs the body, and cancels its attempts when the run's budget, or the time limit of a
  /// shutdown, is used up.
  private func withTimeLimits(
    _ budget: RunBudget?,
    _ body: () async -> Void
  ) async {
    await withDiscardingTaskGroup { group in
      // Don't pass the executor to `addTask`: if it is `nil`, the child task would not even inherit
      // the executor of its parent.
      await withTaskExecutorPreference(time.deadlineExecutor) {
        group.addTask { await self.cutShortAtShutDownLimit() }
        if let budget { group.addTask { await self.cutRunShort(at: budget.deadline) } }
      }
      await body()
      group.cancelAll()
    }
  }

  /// Stores the results that a failed run could not store, and maintains the stored tasks.
  private func prepareRun() async {
    upkeep.state.withLock { $0.conditions.beginRun() }
    await results.settleAll()
    await storage.bestEffort { await maintainTasks() }
  }

  private func maintainTasks() async {
    // Another process may have changed the stored pause since this queue last read it.
    await gate.followStoredPause()
    do {
      for change in upkeep.state.withLock({ $0.pruning.prunings(now: now) }) {
        guard case .broad(.prune(let state, _, _, _, _)) = change, !dispatch.isStopping,
          try await store.contains(TaskFilter(states: [state]))
        else { continue }
        _ = try await store.apply([change], durability: .relaxed)
      }
      // If this run is already stopping, the next run does the rest.
      if dispatch.isStopping { return }
      try await schedules.restoreSchedules(reportsParked: true)
      if dispatch.isStopping { return }
      try await upkeep.reportUnhandledTasksAtRunStart()
    } catch {
      dispatch.fail(error, to: "maintain its tasks")
    }
  }

  private func runWorkers(_ mode: WorkMachine.Mode) async {
    let retryPolicy = storage.retryingStore?.retryPolicy
    retryPolicy?.beginRun()
    await withTaskCancellationHandler {
      guard let sharing = store.sharing else { return await runWorkersAndServices(mode) }
      dispatch.machine.withLock { $0.leasesExtended = time.stopwatch() }
      await claimer.withExtendedLeases(sharing) { await runWorkersAndServices(mode) }
    } onCancel: {
      retryPolicy?.markRunCancelled()
    }
  }

  private func runWorkersAndServices(_ mode: WorkMachine.Mode) async {
    await withDiscardingTaskGroup { services in
      if mode == .untilStopped {
        services.addTask {
          await self.dispatch.signals.timer.run(on: self.time.clock) {
            self.dispatch.signals.workers.signal()
          }
        }
      }
      if !store.appliesAtOnce { services.addTask { await self.results.runFinisher() } }
      if claimer.claimBatch > 0 {
        services.addTask { await self.claimer.releaseUnstartedPrefetched() }
      }
      if let sharing = store.sharing {
        services.addTask { await self.claimer.pollSharedStore(sharing) }
        services.addTask { await self.claimer.followCommands(sharing) }
      }
      if let hints = store.hints { services.addTask { await self.claimer.followHints(hints) } }
      services.addTask { await self.gate.followMonitors() }
      await gate.waitForMonitors()
      // A worker never throws, because that would cancel the handlers of the other workers.
      await withDiscardingTaskGroup { workers in
        for worker in dispatch.signals.interrupts.indices {
          workers.addTask { await self.runWorker(worker) }
        }
      }
      await results.storeRemainingResults()
      await results.releaseUnstarted(dispatch.machine.withLock { $0.takeUnstarted() }, isLast: true)
      services.cancelAll()
    }
  }
}

extension QueueCore {
  /// Runs a worker until there is nothing left to do.
  ///
  /// To cut an attempt short, the worker's child task is cancelled. A cancelled task stays
  /// cancelled, so the worker continues in a new child task.
  private func runWorker(_ worker: Int) async {
    let memory = WorkerMemory()
    var goesOn = true
    while goesOn {
      goesOn = await withTaskGroup(of: WorkerEnd?.self) { group in
        group.addTask {
          await WorkerMark.withMark(self.dispatch, worker) { await self.workLoop(worker, memory) }
        }
        // On this executor, an attempt is cut short even if handlers occupy all of Swift's threads.
        return await withTaskExecutorPreference(time.deadlineExecutor) {
          group.addTask {
            await self.waitForInterrupt(of: worker)
            return nil
          }
          var end: WorkerEnd?
          for await result in group {
            end = end ?? result
            group.cancelAll()
            if result == nil { reportInterruption(of: worker) }
          }
          return end == .interrupted
        }
      }
    }
  }

  private enum WorkerEnd { case done, interrupted }

  private static let attemptsBeforeYielding = 256

  /// Waits until the worker's attempt must be cut short, or until cancelled.
  private func waitForInterrupt(of worker: Int) async {
    while !Task.isCancelled {
      await dispatch.signals.interrupts[worker].wait()
      if dispatch.machine.withLock({ $0.mustInterrupt(worker) }) { return }
    }
  }

  private func reportInterruption(of worker: Int) {
    dispatch.machine.withLock { $0.markInterrupted(worker) }
    dispatch.signals.interruption.resumeAll(with: .success(()))
  }

  private func workLoop(_ worker: Int, _ memory: WorkerMemory) async -> WorkerEnd {
    var attempts = 0
    var step = dispatch.nextStep(of: worker)
    while true {
      switch step {
      case .stop:
        dispatch.signals.workers.signalAll()
        return .done
      case .wait:
        await dispatch.signals.workers.wait()
        step = dispatch.nextStep(of: worker, wasWoken: true)
        continue
      case .claim(let limit, let names):
        step = await claimer.claim(limit, unparking: names, by: worker)
        continue
      case .requeue(let tasks):
        await results.releaseUnstarted(tasks)
        dispatch.machine.withLock { $0.endReleaseByWorker() }
      case .perform(let task, let number, let wakesAnother):
        if wakesAnother { dispatch.signals.workers.signal() }
        await observers.waitForEarlierReports(ofClaimed: task.record)
        if await perform(task, worker, number, memory) { return .interrupted }
        attempts += 1
        // With a store in memory, the loop may never suspend. Other Swift tasks need the thread,
        // too.
        if attempts.isMultiple(of: Self.attemptsBeforeYielding) { await Task.yield() }
      case .carryOut(let command, let task, let wakesAnother):
        if wakesAnother { dispatch.signals.workers.signal() }
        await observers.waitForEarlierReports(ofClaimed: task.record)
        let settlement = judge.settlement(.carryOut(command), of: task, now: now)
        await results.finishWork(of: worker, with: settlement, countsAsAttempt: false)
      }
      step = dispatch.nextStep(of: worker)
    }
  }
}

/// Runs with a budget, for a process that the system wakes for a short time only.
extension QueueCore {
  /// Performs the available tasks that are expected to end within the budget.
  func run(within budget: Duration) async throws -> Int {
    let deadline = time.deadline(after: budget)
    try checkCanRun()
    guard
      let times = try await openStoreUnlessShutDown({
        try await StoreRetryPolicy.$isOfRun.withValue(true) {
          try await openAndReadRunTimes(until: deadline)
        }
      }),
      time.stopwatch() < deadline
    else {
      return 0
    }
    return try await runPass(within: RunBudget(deadline: deadline, times: times))
  }

  /// Opens the store, and reads how long attempts took; returns `nil` if the deadline passes first.
  private func openAndReadRunTimes(until deadline: Duration) async throws -> RunTimes? {
    do {
      return try await withTimeout(deadline - time.stopwatch(), clock: time.clock) {
        try await store.open()
        return RunTimes(try await store.value(named: RunTimes.valueName))
      }
    } catch is TimeoutError where time.stopwatch() >= deadline {
      return nil
    }
  }

  /// Cancels the run's attempts at the deadline; does nothing if the run ends first.
  func cutRunShort(at deadline: Duration) async {
    let left = deadline - time.stopwatch()
    // This is cancelled when the run ends.
    try? await time.wait(for: max(left, .nanoseconds(1)))
    guard !Task.isCancelled else { return }
    dispatch.cutShort { $0.endPass() }
  }

  /// Stores how long attempts took in a run with a budget.
  func storeRunTimes() async {
    guard let budget = upkeep.state.withLock({ $0.budget.take() }) else { return }
    do {
      var waiting: Set<String> = []
      for name in budget.namesTooLong
      where try await store.contains(TaskFilter(names: [name], states: [.waiting])) {
        waiting.insert(name)
      }
      guard !waiting.isEmpty || !budget.measured.isEmpty else { return }
      try await storage.setValue(named: RunTimes.valueName, .relaxed) { bytes in
        var times = RunTimes(bytes)
        budget.update(&times, skippedNames: waiting)
        return try times.bytes()
      }
    } catch {
      dispatch.fail(error, to: "store how long attempts took")
    }
  }
}

/// Shutting down and destroying queues.
extension QueueCore {
  func shutDown(within limit: Duration?) async {
    beginShutDown(within: limit)
    if limit == nil, dispatch.callingTask != nil { return }
    do {
      try await waitForRunEnd()
    } catch {
      // This call was cancelled.
      if limit != nil { dispatch.cutShort() }
    }
  }

  func beginShutDown(within limit: Duration? = nil) {
    if let limit {
      // Limits of more than 2³² seconds could overflow, and all have the same effect.
      dispatch.signals.shutDownLimit.set(
        time.stopwatch() + min(max(limit, .zero), .seconds(Int64(1) << 32))
      )
    }
    let hasEnded = dispatch.machine.withLock { machine in
      machine.shutDown()
      return machine.hasEnded
    }
    dispatch.notifyOfStop()
    if hasEnded { finishShutDown() }
  }

  func destroy() async throws {
    try checkCanBeDestroyed()
    if let group = storage.group { throw group.sharedStoreError }
    try await Self.markDestroyed([self]) {
      await shutDown(within: .zero)
      try await waitForRunEnd()
      try await store.destroy()
    }
  }

  /// Cuts attempts short when the limit of ``beginShutDown(within:)`` has passed.
  func cutShortAtShutDownLimit() async {
    if await dispatch.signals.shutDownLimit.waitUntilPassed(by: time) { dispatch.cutShort() }
  }

  /// Fails waiting callers, ends the events, and drops the handlers.
  ///
  /// Call this when the queue was shut down and its last attempt has ended.
  func finishShutDown() {
    // If a handler references its queue, there is a reference cycle. Break it.
    handlers.close()
    failWaiters()
    observers.events.end()
  }

  /// Fails callers that wait for tasks, unless the queue still performs tasks or is just being
  /// destroyed.
  private func failWaiters() {
    guard let error = dispatch.machine.withLock({ $0.reasonToFailWaiters }) else { return }
    observers.outcomes.failAllWaiters(with: error)
    dispatch.signals.idleWaiters.notifyOfStep()
  }

  /// Performs the body, which destroys the queues, and marks the queues as destroyed if it does not
  /// throw.
  ///
  /// Callers that wait for tasks of the queues get their error after the body: whether their tasks
  /// still exist is known only then.
  static func markDestroyed(
    _ queues: [QueueCore],
    by body: () async throws -> Void
  ) async throws {
    func mark(_ destruction: WorkMachine.Destruction) {
      for queue in queues {
        // A queue that was destroyed stays destroyed, even if a later call fails.
        queue.dispatch.machine.withLock {
          if $0.destruction != .done { $0.destruction = destruction }
        }
        queue.failWaiters()
      }
    }
    mark(.underWay)
    do {
      try await body()
    } catch {
      mark(.none)
      throw error
    }
    mark(.done)
  }

  /// Throws if a handler makes the call, because it would wait for its own end.
  func checkCanBeDestroyed() throws(TaskQueueError) {
    guard let task = dispatch.callingTask else { return }
    throw TaskQueueError(
      .waitsForItself,
      "the handler of the task \(task) called destroy() on its queue '\(name)' or the queue's group; "
        + "destroy() waits for all handlers to end, so call it after run() has returned"
    )
  }

  /// Waits until the queue is not running.
  func waitForRunEnd() async throws {
    try await dispatch.signals.runEnd.wait {
      dispatch.machine.withLock { $0.mode == nil } ? .success(()) : nil
    }
  }
}

extension QueueCore {
  func waitUntilIdle() async throws {
    try checkCanWaitUntilIdle()
    let date = now
    // Only a claim that starts after this call proves that no task is available. A claim that is in
    // flight now may have read the store before this call.
    let claim = dispatch.machine.withLock { $0.claims.count }
    try await RealWork.reportingWait({ _ in self.whyNotIdle }) {
      while try await !waitUntilPossiblyIdle(afterClaim: claim, at: date) {}
    }
  }

  /// Throws if a handler makes the call, because it would wait for its own end.
  func checkCanWaitUntilIdle() throws(TaskQueueError) {
    guard let task = dispatch.callingTask else { return }
    throw TaskQueueError(
      .waitsForItself,
      "the handler of the task \(task) called waitUntilIdle() on its queue '\(name)' or the queue's "
        + "group; the queue is not idle before the handler ends, so don't call it in a handler"
    )
  }

  /// Waits for an event that may have made the queue idle.
  ///
  /// - Returns: Whether the queue is idle. If not, call this again.
  private func waitUntilPossiblyIdle(afterClaim claim: Int, at date: Date) async throws -> Bool {
    try await dispatch.signals.idleWaiters.wait {
      switch dispatch.machine.withLock({ $0.idleness(afterClaim: claim, at: date) }) {
      case .busy: nil
      case .unknown, .idle, .ended, .failed: .success(())
      }
    }
    let (idleness, claimCount) = dispatch.machine.withLock { machine in
      (machine.idleness(afterClaim: claim, at: date), machine.claims.count)
    }
    switch idleness {
    case .busy: return false
    case .idle: return true
    case .ended(let error), .failed(let error): throw error
    case .unknown: break
    }
    // Make a worker claim tasks, to find out whether the store has available ones. If the queue is
    // not running, a worker of the next run claims them.
    dispatch.signals.workers.signal()
    try await dispatch.signals.idleWaiters.wait {
      dispatch.machine.withLock { machine in
        guard machine.claims.count == claimCount,
          case .unknown = machine.idleness(afterClaim: claim, at: date)
        else { return .success(()) }
        return nil
      }
    }
    return false
  }

  private var whyNotIdle: String {
    let performing = dispatch.machine.withLock { $0.performing }
    return performing > 0
      ? "the queue '\(name)' to become idle; it performs tasks whose handlers have not ended"
      : "the queue '\(name)' to become idle; it is not running: call run()"
  }
}

/// Descriptions of what a call waits for, in the errors of tests that never end.
extension QueueCore {
  /// Describes a task for whose outcome a call waits, and what keeps the task from ending.
  func whyIsAwaited(_ id: TaskID, _ clock: any WallClock) async -> String {
    // Read the record only from a store in memory. In a test that never ends, a call of another
    // store might not return, either.
    let isInMemory = store is InMemoryStore
    let record = isInMemory ? try? await storage.record(of: id) : nil
    let task = record.map { "'\($0.name)' \(id)" } ?? "\(id)"
    return
      "the outcome of the task \(task) in the queue '\(name)'\(reasonNotEnded(id, record, clock))"
  }

  private func reasonNotEnded(
    _ id: TaskID,
    _ record: TaskRecord?,
    _ clock: any WallClock
  ) -> String {
    let (mode, pause, isPerformed, performing) = dispatch.machine.withLock { machine in
      (machine.mode, machine.pause, machine.isUnsettled(id), machine.performing)
    }
    if mode == nil { return ", which does not run: call run(), runAvailable() or drain(_:)" }
    if let pause { return ", which is \(pause)" }
    if let record {
      if record.state == .parked { return ", which is parked: \(record.lastError ?? "")" }
      if record.state == .paused { return ", which is paused: call resume(_:) with its ID" }
      if let reason = handlers.reasonForNoHandler(of: record) { return ": \(reason)" }
      if record.availableDate > now {
        let isSame = (clock as AnyObject) === (self.time.clock as AnyObject)
        return isSame
          ? ", which waits for its date"
          : ", which waits for its date on another clock: give the queue the virtual time's"
      }
    }
    if isPerformed {
      return """
        , whose handler has not ended: it waits for its own task, or for something that never \
        happens
        """
    }
    guard performing >= configuration.workerCount else { return "" }
    return """
      , which can't start: the queue already performs the maximum number of tasks \
      (maxConcurrentTasks: \(performing)), and the handler of one of them may wait for this task
      """
  }

  /// Describes what keeps the current run from ending.
  var whyRunGoesOn: String {
    let (pause, hasEnded, performing) = dispatch.machine.withLock { machine in
      (machine.pause, machine.hasEnded, machine.performing)
    }
    let tasks =
      performing == 1 ? "a task whose handler has" : "\(performing) tasks whose handlers have"
    if hasEnded, performing > 0 {
      return """
        the end of the queue '\(name)', which is being shut down and performs \(tasks) not ended
        """
    }
    if performing > 0 {
      return "the end of the run of the queue '\(name)', which performs \(tasks) not ended"
    }
    return """
      the end of the run of the queue '\(name)', which is \(pause == nil ? "idle" : "paused"): call \
      shutDown(), or cancel the task that runs it
      """
  }
}

extension WorkMachine {
  /// Describes how the queue is paused, and how to resume it; `nil` if it is not paused.
  fileprivate var pause: String? {
    guard isPaused else { return nil }
    return isPausedByStore
      ? "paused in its store: call resume(durability:)" : "paused: call resume()"
  }
}
