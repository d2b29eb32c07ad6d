import SteadfastRetry
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
      // A child to whom no executor is given, instead, does not even have its parent's.
      await withTaskExecutorPreference(time.deadlineExecutor) {
        group.addTask { await self.keepToShutDownLimit() }
        if let budget { group.addTask { await self.keepToBudget(budget.deadline) } }
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

extension TaskQueue {
  /// Pauses the queue: no further attempt begins, and those under way go on.
  ///
  /// Only this queue is paused, in memory. To pause every queue on the store, beyond the end of the
  /// process, call ``pause(durability:)``.
  ///
  /// When the call returns, no attempt begins until ``resume()``. An attempt is under way as soon
  /// as a worker has taken its task, which is before the handler is called; for a recurring task,
  /// the worker looks into the store in between. If the calling Swift task is cancelled, the queue
  /// is paused all the same, but the waiting ends at once. Tasks are still enqueued, and ``run()``
  /// goes on without performing any.
  ///
  /// A queue that is paused and resumed again and again still makes progress. If a pause releases
  /// claimed tasks before they begin, the next pause lets the claimed tasks begin, and returns when
  /// they have.
  public func pause() async {
    await holdBack { $0.setPaused(true) }
    await waitForLastAttempts()
  }

  /// Puts back the claimed tasks that may not begin because of a pause.
  nonisolated func holdBack(_ pause: (inout WorkMachine) -> Void = { _ in }) async {
    let unbegun = machine.withLock { machine in
      pause(&machine)
      return machine.takeHeldBack()
    }
    await putBack(unbegun)
    signals.idleWatch.step()
  }

  /// Waits for the attempts that begin although the queue is paused, or until cancelled.
  nonisolated func waitForLastAttempts() async {
    while !Task.isCancelled, machine.withLock({ $0.letsThrough }) {
      // Cancelled: the loop ends.
      try? await signals.pauseProgress.wait {
        machine.withLock { $0.letsThrough } ? nil : .success(())
      }
    }
  }

  /// Undoes ``pause()``.
  ///
  /// A pause that the store holds stays: ``resume(durability:)`` ends it.
  public func resume() async {
    machine.withLock { $0.setPaused(false) }
    signals.pauseProgress.resumeAll(with: .success(()))
    signals.workers.signalAll()
  }

  /// Whether the queue was paused and not resumed, in memory or in its store.
  ///
  /// What the store says is known from the first call of the queue on, such as ``open()``. In a
  /// shared store, another queue may have changed it since this queue has looked.
  public nonisolated var isPaused: Bool { machine.withLock { $0.isPaused } }

  /// Whether an attempt is under way.
  public nonisolated var isProcessing: Bool { machine.withLock { $0.performing > 0 } }

  /// Lets no further attempt begin, for good, and waits until those under way have ended.
  ///
  /// ``run()`` then returns. Tasks can still be enqueued and looked up; they wait for a new queue
  /// on the same store. Once the new queue runs, enqueue with it: it does not notice what another
  /// queue adds. A call that waits for the outcome of a task that has not ended throws. Observers
  /// get no more events. The queue drops its handlers, with everything that they hold. If the
  /// waiting is cancelled, it ends at once and the shutdown goes on.
  ///
  /// Without a limit, a call from a handler of the queue, or from something that the handler
  /// started, returns at once, as ``beginShutDown(within:)`` does: it would wait for itself.
  ///
  /// - Parameter limit: how long attempts may go on; by default until they end. When the limit has
  ///   passed, the attempts are cancelled, their tasks are released unharmed as when ``run()`` is
  ///   cancelled, and the call waits for their handlers. If the waiting is cancelled, or the limit
  ///   is zero or less, the attempts are cancelled at once.
  public func shutDown(within limit: Duration? = nil) async {
    beginShutDown(within: limit)
    if limit == nil, callingTask != nil { return }
    do {
      try await signals.runEnd.wait { machine.withLock { $0.mode == nil } ? .success(()) : nil }
    } catch {
      // The waiting is cancelled.
      if limit != nil { cutShort() }
    }
  }

  /// Cuts attempts short when the limit of ``beginShutDown(within:)`` has passed.
  nonisolated func keepToShutDownLimit() async {
    if await signals.shutDownLimit.hasPassed(by: time) { cutShort() }
  }

  private nonisolated func cutShort() {
    machine.withLock { $0.cutShort() }
    stopMayHaveCome()
    for interrupt in signals.interrupts { interrupt.signal() }
  }

  /// Begins what ``shutDown(within:)`` does, without waiting.
  ///
  /// It is for code that can't wait, such as the event handler of a signal source, a service group,
  /// or a deinitializer. It takes locks, so don't call it in the handler of the C function `signal`
  /// itself.
  ///
  /// - Parameter limit: how long attempts may go on, as for ``shutDown(within:)``; by default until
  ///   they end. Of several calls, the one whose limit ends first counts.
  public nonisolated func beginShutDown(within limit: Duration? = nil) {
    // A longer limit makes no difference.
    if let limit {
      signals.shutDownLimit.set(time.stopwatch() + min(max(limit, .zero), .seconds(Int64(1) << 32)))
    }
    let hasEnded = machine.withLock { machine in
      machine.shutDown()
      return machine.hasEnded
    }
    stopMayHaveCome()
    if hasEnded { end() }
  }

  /// Ends the queue: fails waiting callers, ends the events, and drops the handlers.
  ///
  /// It is called when nothing is performed any more.
  nonisolated func end() {
    // A handler may hold its queue, which would then never be freed.
    handlers.close()
    failWaiters()
    observers.events.end()
  }

  /// Fails waiting callers, if it is known what becomes of the tasks.
  private nonisolated func failWaiters() {
    guard let error = machine.withLock({ $0.reasonToFailWaiters }) else { return }
    observers.outcomes.failWaiters(error)
    signals.idleWatch.step()
  }

  /// Removes all tasks and values for good, and what the store keeps them in, a file for example.
  ///
  /// It cancels the attempts under way, waits for them, and shuts the queue down. Every later call
  /// throws, and callers that wait for a task's outcome get an error.
  ///
  /// A queue of a ``TaskQueueGroup`` refuses, and goes on: its store is that of the group, which
  /// can be destroyed as a whole (``TaskQueueGroup/destroy()``).
  ///
  /// - Throws: `CancellationError` when it is cancelled while it waits for the attempts: then the
  ///   queue is shut down, and its tasks stay. A ``TaskQueueError`` with the code
  ///   ``TaskQueueError/Code/waitsForItself`` if a handler of the queue calls it, or with the code
  ///   ``TaskQueueError/Code/invalidArgument`` if the queue is one of a group. What the store
  ///   throws.
  public func destroy() async throws {
    try checkCanBeDestroyed()
    if let group = backing.group { throw group.isDestroyedAsAWhole }
    try await Self.destroying([self]) {
      await shutDown(within: .zero)
      try await waitToBeDestroyed()
      try await store.destroy()
    }
  }

  /// Performs the body, which destroys queues, and tells waiting callers then what has become of
  /// their tasks.
  static nonisolated func destroying(
    _ queues: [TaskQueue],
    _ body: () async throws -> Void
  ) async throws {
    func tell(_ destruction: WorkMachine.Destruction) {
      for queue in queues {
        // A later call can't bring the tasks back.
        queue.machine.withLock { if $0.destruction != .done { $0.destruction = destruction } }
        queue.failWaiters()
      }
    }
    tell(.underWay)
    do {
      try await body()
    } catch {
      tell(.none)
      throw error
    }
    tell(.done)
  }

  /// Refuses a call of a handler, which would wait for itself.
  nonisolated func checkCanBeDestroyed() throws(TaskQueueError) {
    guard let task = callingTask else { return }
    throw TaskQueueError(
      .waitsForItself,
      "the handler of the task \(task) has called destroy() of its queue '\(name)', or of its group, "
        + "which waits until the handlers have ended; call it when run() has returned"
    )
  }

  /// Waits until a queue that is shut down uses its store no more.
  nonisolated func waitToBeDestroyed() async throws {
    try await signals.runEnd.wait { machine.withLock { $0.mode == nil } ? .success(()) : nil }
  }

  /// Whether no task will be performed any more.
  nonisolated var hasEnded: Bool { machine.withLock { $0.hasEnded } }
}

extension TaskQueue {
  /// Waits until the queue is idle.
  ///
  /// A queue is idle when no attempt is under way, the ends of the last attempts are stored, and no
  /// task is available that the queue may perform.
  ///
  /// ```swift
  /// async let run: Void = queue.run()
  /// try await queue.enqueue(contentsOf: uploads)
  /// try await queue.waitUntilIdle()
  /// ```
  /// Tasks that were added before the call are performed first. The call does not wait for:
  /// - tasks with a later date, such as a retry;
  /// - paused tasks, and tasks whose name is paused;
  /// - tasks without a handler.
  ///
  /// A paused queue is idle when its attempts have ended. A queue that does not run does nothing:
  /// the call waits until the queue has run and found nothing more to do. The same holds for a
  /// pass (``runAvailable()``) that began before the call, because it performs nothing that was
  /// added since. By the time the call returns, a task may have been added again, or another may
  /// have become available.
  ///
  /// - Throws: `CancellationError` when the waiting is cancelled; the queue goes on. A
  ///   ``TaskQueueError`` if the queue was shut down (``TaskQueueError/Code/shutDown``), the run
  ///   has ended because its store failed (``TaskQueueError/Code/storeFailed``), or one of the
  ///   queue's handlers calls it (``TaskQueueError/Code/waitsForItself``). What keeps the store
  ///   from being opened.
  public nonisolated func waitUntilIdle() async throws {
    try await open()
    try checkCanWaitUntilIdle()
    let date = now
    // A claim in flight may have looked at the store before the call.
    let claim = machine.withLock { $0.claims.count }
    try await RealWork.waiting({ _ in self.whyNotIdle }) {
      while try await !isIdle(afterClaim: claim, at: date) {}
    }
  }

  /// Refuses a call of a handler, which would wait for itself.
  nonisolated func checkCanWaitUntilIdle() throws(TaskQueueError) {
    guard let task = callingTask else { return }
    throw TaskQueueError(
      .waitsForItself,
      "the handler of the task \(task) waits until its queue '\(name)' is idle, which it is when "
        + "the handler has ended"
    )
  }

  /// Waits for a step that may have made the queue idle, or until nothing is under way.
  ///
  /// - Returns: Whether the queue is idle. If not, the caller calls again.
  private nonisolated func isIdle(afterClaim claim: Int, at date: Date) async throws -> Bool {
    try await signals.idleWatch.wait {
      switch machine.withLock({ $0.idleness(afterClaim: claim, at: date) }) {
      case .busy: nil
      case .unknown, .idle, .ended, .failed: .success(())
      }
    }
    let (idleness, claimCount) = machine.withLock { machine in
      (machine.idleness(afterClaim: claim, at: date), machine.claims.count)
    }
    switch idleness {
    case .busy: return false
    case .idle: return true
    case .ended(let error), .failed(let error): throw error
    case .unknown: break
    }
    // A worker claims now; if the queue does not run, a worker of the next run does.
    signals.workers.signal()
    try await signals.idleWatch.wait {
      machine.withLock { machine in
        guard machine.claims.count == claimCount,
          case .unknown = machine.idleness(afterClaim: claim, at: date)
        else { return .success(()) }
        return nil
      }
    }
    return false
  }

  private nonisolated var whyNotIdle: String {
    let performing = machine.withLock { $0.performing }
    return performing > 0
      ? "that the queue '\(name)' is idle, which performs tasks whose handlers have not ended"
      : "that the queue '\(name)' is idle, which does not run"
  }
}

/// Runs that have a limited time, as a process has that the system has woken for a while.
extension TaskQueue {
  /// Performs the tasks that are available now and can be expected to end in time.
  ///
  /// It is ``runAvailable()`` for a process that may run for some seconds only: an app in the
  /// background, a function on a server. A task begins only if the last three attempts of its name
  /// in such runs took, on average, no longer than what is left of the time. A name of which none
  /// was measured is tried. Tasks that are left out wait as before.
  ///
  /// When the time is up, the attempts under way are cancelled and their tasks released unharmed,
  /// with no retry counted, and the call waits for their handlers. Such an attempt counts for the
  /// average with twice the time that it had, or with the average so far if that is longer. The
  /// ends are stored after that, so keep a second in reserve. A store that is gone is waited for
  /// until the time is up: then the call throws if the end of an attempt is not stored.
  ///
  /// The averages are a value of the store, and outlast the process. If a name's average is longer
  /// than the whole time while tasks of it wait, its oldest attempt is forgotten. So it is tried
  /// again in the fourth such run at the latest: one slow attempt does not exclude its name for
  /// good.
  ///
  /// - Parameter budget: how long attempts may go on, from the call on, including the time in which
  ///   the store is opened and the queue looks after what it keeps. With zero or less, nothing is
  ///   performed.
  /// - Returns: The number of attempts; 0 if the queue is paused, or the store can't be opened and
  ///   read in time.
  /// - Throws: The same errors as ``run()``.
  @discardableResult
  public nonisolated func run(within budget: Duration) async throws -> Int {
    let deadline = time.deadline(after: budget)
    try checkCanRun()
    guard let times = try await opening({ try await runTimes(until: deadline) }),
      time.stopwatch() < deadline
    else {
      return 0
    }
    let cutoff = machine.withLock { $0.nextCutoff(now: now) }
    return try await run(
      .pass(cutoff: cutoff),
      within: RunBudget(deadline: deadline, times: times)
    )
  }

  /// Opens the store, and reads how long attempts took; `nil` if the time is up before that.
  private nonisolated func runTimes(until deadline: Duration) async throws -> RunTimes? {
    do {
      return try await withTimeout(deadline - time.stopwatch(), clock: time.clock) {
        try await store.open()
        return RunTimes(try await store.value(named: RunTimes.valueName))
      }
    } catch is TimeoutError where time.stopwatch() >= deadline {
      return nil
    }
  }

  /// Returns how many tasks of each name may be claimed within the run's time, if it is limited.
  nonisolated func roomWithinBudget(_ room: [String: Int]) -> [String: Int] {
    guard signals.isPassing.load(ordering: .relaxed) else { return room }
    let now = time.stopwatch()
    return upkeep.withLock { $0.budget?.room(in: room, at: now) ?? room }
  }

  /// Notes how long an attempt took, if the run's time is limited.
  nonisolated func noteRunTime(_ time: Duration, of name: String) {
    guard signals.isPassing.load(ordering: .relaxed) else { return }
    let (now, wasCutShort) = (self.time.stopwatch(), Task.isCancelled)
    upkeep.withLock { $0.budget?.note(time, of: name, wasCutShort: wasCutShort, at: now) }
  }

  /// Ends the run when its time is up.
  nonisolated func keepToBudget(_ deadline: Duration) async {
    let left = deadline - time.stopwatch()
    // If this is cancelled, the run has ended before.
    try? await time.wait(for: max(left, .nanoseconds(1)))
    guard !Task.isCancelled else { return }
    machine.withLock { $0.endPass() }
    stopMayHaveCome()
    for interrupt in signals.interrupts { interrupt.signal() }
  }

  /// Stores what a run with limited time has learned about how long attempts take.
  nonisolated func keepRunTimes() async {
    guard let budget = upkeep.withLock({ $0.budget.take() }) else { return }
    do {
      var waiting: Set<String> = []
      for name in budget.tooLong
      where try await store.contains(TaskFilter(names: [name], states: [.waiting])) {
        waiting.insert(name)
      }
      guard !waiting.isEmpty || !budget.measured.isEmpty else { return }
      try await setValue(named: RunTimes.valueName, .relaxed) { bytes in
        var times = RunTimes(bytes)
        budget.update(&times, waiting: waiting)
        return try times.bytes()
      }
    } catch {
      fail(error, to: "keep how long attempts took")
    }
  }
}

/// Describes to a test what it waits for, when the wait may never end.
extension TaskQueue {
  /// Describes the task whose outcome is awaited, and what keeps it from ending.
  nonisolated func whyIsAwaited(_ id: TaskID, _ clock: any WallClock) async -> String {
    // Only a store in memory answers regardless of what else waits.
    let isInMemory = store is InMemoryStore
    let record = isInMemory ? try? await record(of: id) : nil
    let task = record.map { "'\($0.name)' \(id)" } ?? "\(id)"
    return
      "the outcome of the task \(task) in the queue '\(name)'\(obstacle(to: id, record, clock))"
  }

  private nonisolated func obstacle(
    to id: TaskID,
    _ record: TaskRecord?,
    _ clock: any WallClock
  ) -> String {
    let (mode, pause, isPerformed, performing) = machine.withLock { machine in
      (machine.mode, machine.pause, machine.isUnsettled(id), machine.performing)
    }
    if mode == nil { return ", which does not run: call run(), runAvailable() or drain(_:)" }
    if let pause { return ", which is \(pause)" }
    if let record {
      if record.state == .parked { return ", which is parked: \(record.lastError ?? "")" }
      if record.state == .paused { return ", which is paused: call resume(_:) with its ID" }
      if handlers[record.name] == nil {
        return ": no handler is registered for '\(record.name)'"
      }
      if record.availableDate > now {
        let isSame = (clock as AnyObject) === (self.time.clock as AnyObject)
        return isSame
          ? ", which waits for its date"
          : ", which waits for its date on another clock: give the queue the virtual time's"
      }
    }
    if isPerformed {
      return ", whose handler has not ended: it waits for itself, or for what never comes"
    }
    guard performing >= configuration.workerCount else { return "" }
    return """
      , which can't begin: the queue performs \(performing), as many as it may \
      (maxConcurrentTasks), and one of them may be waiting for it
      """
  }

  /// Describes what keeps a run from ending.
  nonisolated var whyRunGoesOn: String {
    let (pause, hasEnded, performing) = machine.withLock { machine in
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
  /// How the queue is paused, and how that ends; `nil` if it is not paused.
  fileprivate var pause: String? {
    guard isPaused else { return nil }
    return isPausedByStore
      ? "paused in its store: call resume(durability:)" : "paused: call resume()"
  }
}

/// Marks a Swift task as a worker, or as a child of a worker.
///
/// There is one mark for each worker, not for each attempt. The machine knows what a worker
/// performs.
struct WorkerMark: Sendable {
  private let queue: ObjectIdentifier
  private let worker: Int

  /// The workers around the current Swift task; several if a handler runs another queue.
  @TaskLocal private static var current: [WorkerMark] = []

  static func around<Result>(
    _ queue: TaskQueue,
    _ worker: Int,
    _ body: () async -> Result
  ) async -> Result {
    let mark = WorkerMark(queue: ObjectIdentifier(queue), worker: worker)
    return await $current.withValue(current + [mark]) { await body() }
  }

  /// Returns the worker of a queue that the current Swift task belongs to, if there is one.
  static func worker(of queue: TaskQueue) -> Int? {
    current.last { $0.queue == ObjectIdentifier(queue) }?.worker
  }
}

extension TaskQueue {
  /// The task of this queue whose handler is the caller, or has called or started the caller.
  ///
  /// Such a caller would wait forever for the end of its own task, or for the end of the run.
  nonisolated var callingTask: TaskID? {
    guard let worker = WorkerMark.worker(of: self) else { return nil }
    return machine.withLock { $0.attempts[worker]?.id }
  }
}
