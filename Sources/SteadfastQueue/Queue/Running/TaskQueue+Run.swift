import Synchronization

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

extension TaskQueue {
  /// Performs tasks until it is cancelled or the queue is shut down.
  ///
  /// Handlers run in child tasks of this call, so cancelling the call cancels them, too. A task
  /// whose handler then throws is released, with no retry counted. When all handlers have ended,
  /// the call throws `CancellationError`. After ``shutDown(within:)``, it returns, also if the
  /// store is still being opened.
  ///
  /// - Throws: `CancellationError`; the error that keeps the store from being opened; a
  ///   ``TaskQueueError`` if the queue or another one on its store already runs, if the queue was
  ///   shut down, or if its store has failed. After a failure of the store, nothing acknowledged is
  ///   lost. Run this queue again, which knows how the last attempts ended and what was asked of
  ///   their tasks, or close the store and make a new queue with a new store. Calls that wait for
  ///   outcomes keep waiting, so check what the run throws, as a task group does.
  public nonisolated func run() async throws { try await run(.untilStopped) }

  /// Performs the tasks that are available now, and returns when they are done.
  ///
  /// A task that fails is not tried again in the same pass, even if its retry is due at once. A
  /// task that is enqueued during the pass, by a handler too, becomes available after the date of
  /// the call, so it is left for the next pass. On a clock that stands still during the pass, as in
  /// a test, it is performed in the same pass. To wait for all tasks, call ``waitUntilIdle()``
  /// while ``run()`` performs them.
  ///
  /// - Returns: The number of attempts; 0 if the queue is paused.
  /// - Throws: The same errors as ``run()``.
  @discardableResult
  public nonisolated func runAvailable() async throws -> Int {
    let cutoff = machine.withLock { $0.nextCutoff(now: now) }
    return try await run(.pass(cutoff: cutoff))
  }

  /// Performs tasks as the mode says, and returns the number of attempts.
  @discardableResult
  nonisolated func run(
    _ mode: WorkMachine.Mode,
    within budget: RunBudget? = nil
  ) async throws -> Int {
    // A run with limited time has opened the store within that time.
    if budget == nil {
      try checkCanRun()
      try await opening { try await store.open() }
    }
    let use = store.useIfKnown
    guard try begins(mode, use, claimBatch: budget == nil ? claimBatch : 0) else { return 0 }
    if let budget { upkeep.withLock { $0.budget = budget } }
    tellPatience()
    await keepingToLimits(budget) {
      await beginRun()
      await RealWork.waiting({ _ in self.whyRunGoesOn }) { await work(mode) }
      if budget != nil { await keepRunTimes() }
    }
    let (failure, wasCancelled, hasEnded, attemptCount) = machine.withLock { machine in
      machine.end()
      // A caller that is notified of the end may run another queue on the store at once.
      use?.end()
      return (machine.failure, machine.wasCancelled, machine.hasEnded, machine.attemptCount)
    }
    tellPatience()
    signals.runHasEnded()
    if hasEnded { end() }
    if let failure { throw failure }
    if wasCancelled { throw CancellationError() }
    return attemptCount
  }

  /// Checks that a run may open the store, and begin.
  nonisolated func checkCanRun() throws {
    try RealWork.checkRun(of: name, on: time.clock)
    try checkCanOpen()
    try machine.withLock { machine throws(TaskQueueError) in try machine.checkCanBegin() }
  }

  /// Begins a run, unless the queue was shut down while the store was opened.
  private nonisolated func begins(
    _ mode: WorkMachine.Mode,
    _ use: (any StoreUse)?,
    claimBatch: Int
  ) throws -> Bool {
    let names = handlers.names
    return try machine.withLock { machine in
      if machine.isShutDown { return false }
      try machine.checkCanBegin()
      try use?.begin(name, on: store)
      machine.begin(mode, names: names, claimBatch: claimBatch)
      signals.isPassing.store(mode != .untilStopped, ordering: .sequentiallyConsistent)
      return true
    }
  }

  /// Performs the body, which opens the store for a run.
  ///
  /// - Returns: What the body returns; `nil` if the queue was shut down, and the store not opened.
  nonisolated func opening<Result>(_ body: () async throws -> Result?) async throws -> Result? {
    do {
      return try await body()
    } catch {
      // Nothing is performed any more, so the store is not needed.
      if machine.withLock({ $0.isShutDown }) { return nil }
      if error.isTransientFailure { try Task.checkCancellation() }
      throw error
    }
  }

  /// Performs the body, which is all of a run, and cuts it short when the time to shut down is up,
  /// or the time of the run, if it is limited.
  private nonisolated func keepingToLimits(
    _ budget: RunBudget?,
    _ body: () async -> Void
  ) async {
    await withDiscardingTaskGroup { group in
      let executor = time.deadlineExecutor
      group.addTask(executorPreference: executor) { await self.keepToShutDownLimit() }
      if let budget {
        group.addTask(executorPreference: executor) { await self.keepToBudget(budget.deadline) }
      }
      await body()
      group.cancelAll()
    }
  }

  /// Stores what a failed run left over, and looks after what the queue keeps.
  private nonisolated func beginRun() async {
    upkeep.withLock { $0.conditions.beginRun() }
    await settleAll()
    await looking { await lookAfterTasks() }
  }

  /// Follows the stored pause, prunes ended tasks, puts missing occurrences back, and reports tasks
  /// without a handler.
  private nonisolated func lookAfterTasks() async {
    // Another queue may have changed it since this one has last looked.
    await followStoredPause()
    do {
      for change in upkeep.withLock({ $0.pruning.changes(now: now) }) {
        guard case .prune(let state, _, _, _, _) = change, !isToEnd,
          try await store.contains(TaskFilter(states: [state]))
        else { continue }
        _ = try await store.apply([change], durability: .relaxed)
      }
      // A run whose time is up leaves the rest to the next one.
      if isToEnd { return }
      try await restoreSchedules()
      if isToEnd { return }
      try await tellUnhandledAtBeginning()
    } catch {
      fail(error, to: "look after the tasks it keeps")
    }
  }

  private nonisolated var isToEnd: Bool { machine.withLock { $0.isStopping } }

  private nonisolated func work(_ mode: WorkMachine.Mode) async {
    let patience = backing.patientStore?.patience
    patience?.beginRun()
    await withTaskCancellationHandler {
      guard let sharing = store.sharing else { return await workAndServe(mode) }
      machine.withLock { $0.leasesExtended = time.stopwatch() }
      await extendingLeases(sharing) { await workAndServe(mode) }
    } onCancel: {
      patience?.runWasCancelled()
    }
  }

  private nonisolated func workAndServe(_ mode: WorkMachine.Mode) async {
    await withDiscardingTaskGroup { services in
      if mode == .untilStopped {
        services.addTask {
          await self.signals.timer.run(on: self.time.clock) { self.signals.workers.signal() }
        }
      }
      if !store.appliesAtOnce { services.addTask { await self.finishLoop() } }
      if claimBatch > 0 { services.addTask { await self.watchClaimsAhead() } }
      if let sharing = store.sharing {
        services.addTask { await self.lookForOthersTasks(sharing) }
      }
      if let hints = store.hints { services.addTask { await self.follow(hints) } }
      services.addTask { await self.followMonitors() }
      await waitForMonitors()
      // No worker throws: a child that throws would cancel its siblings' handlers.
      await withDiscardingTaskGroup { workers in
        for worker in signals.interrupts.indices {
          workers.addTask { await self.work(worker) }
        }
      }
      await settleRest()
      await putBack(machine.withLock { $0.takeUnbegun() }, isLast: true)
      services.cancelAll()
    }
  }

  // MARK: Workers

  /// Runs a worker until there is nothing left to do.
  ///
  /// A Swift task that was cancelled stays cancelled. So a child whose attempt is cut short ends
  /// with the attempt, and another child takes its place.
  private nonisolated func work(_ worker: Int) async {
    let memory = WorkerMemory()
    var goesOn = true
    while goesOn {
      goesOn = await withTaskGroup(of: WorkerEnd?.self) { group in
        group.addTask {
          await WorkerMark.around(self, worker) { await self.workLoop(worker, memory) }
        }
        // The attempt is cut short even if handlers occupy all of Swift's threads.
        return await withTaskExecutorPreference(time.deadlineExecutor) {
          group.addTask {
            await self.waitForInterrupt(of: worker)
            return nil
          }
          var end: WorkerEnd?
          for await result in group {
            end = end ?? result
            group.cancelAll()
            if result == nil { wasInterrupted(worker) }
          }
          return end == .interrupted
        }
      }
    }
  }

  private enum WorkerEnd { case done, interrupted }

  private static let attemptsBeforeYielding = 256

  /// Waits until the worker's attempt is to be cut short, or until cancelled.
  private nonisolated func waitForInterrupt(of worker: Int) async {
    while !Task.isCancelled {
      await signals.interrupts[worker].wait()
      if machine.withLock({ $0.isInterrupted(worker) }) { return }
    }
  }

  /// Notifies the callers that wait for it that the worker's attempt is cut short.
  private nonisolated func wasInterrupted(_ worker: Int) {
    machine.withLock { $0.wasInterrupted(worker) }
    signals.interruption.resumeAll(with: .success(()))
  }

  private nonisolated func workLoop(_ worker: Int, _ memory: WorkerMemory) async -> WorkerEnd {
    var attempts = 0
    var step = nextStep(of: worker)
    while true {
      switch step {
      case .stop:
        signals.workers.signalAll()
        return .done
      case .wait:
        await signals.workers.wait()
        step = nextStep(of: worker, wasWoken: true)
        continue
      case .claim(let limit, let names):
        step = await claim(limit, unparking: names, by: worker)
        continue
      case .putBack(let tasks):
        await putBack(tasks)
        machine.withLock { $0.hasPutBack() }
      case .perform(let task, let number, let wakesAnother):
        if wakesAnother { signals.workers.signal() }
        await observers.catchUp(withClaimed: task.record)
        if await perform(task, worker, number, memory) { return .interrupted }
        attempts += 1
        // A store in memory and a handler may never suspend; others need the thread, too.
        if attempts.isMultiple(of: Self.attemptsBeforeYielding) { await Task.yield() }
      case .obey(let directive, let task, let wakesAnother):
        if wakesAnother { signals.workers.signal() }
        await observers.catchUp(withClaimed: task.record)
        let settlement = judge.settlement(.obey(directive), of: task, now: now)
        await finish(settlement, worker, isAttempt: false)
      }
      step = nextStep(of: worker)
    }
  }

  /// Applies an event to the machine, and returns what the worker does next.
  ///
  /// The event returns whether there is a next step at once. If not, the worker waits.
  nonisolated func nextStep(
    of worker: Int,
    wasWoken: Bool = false,
    after event: (inout WorkMachine) -> Bool = { _ in true }
  ) -> WorkMachine.Step {
    let isCancelled = Task.isCancelled
    let (step, isPaused) = machine.withLock { machine in
      let goesOn = event(&machine)
      if isCancelled { machine.cancel() }
      let step: WorkMachine.Step =
        goesOn ? machine.next(for: worker, wasWoken: wasWoken, at: time.stopwatch) : .wait
      return (step, machine.isPaused)
    }
    if isPaused { signals.pausedWorkerHasStepped() }
    return step
  }
}
