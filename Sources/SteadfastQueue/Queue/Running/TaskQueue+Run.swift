import Synchronization

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

extension TaskQueue {
  /// Performs tasks until it is cancelled or the queue is shut down.
  ///
  /// The tasks it performs are its children. When it is cancelled they are cancelled too; those
  /// that then throw are put back unharmed, with no retry counted, and it throws
  /// `CancellationError` when they have ended. It returns after ``shutDown(within:)``.
  ///
  /// - Throws: `CancellationError`; what keeps the store from being opened; a ``TaskQueueError``
  ///   if the queue runs already, or another one on its store, it was shut down, or its store has
  ///   failed. After a failure of the store, nothing acknowledged is lost: run this queue again, which
  ///   knows how the last attempts ended, or close the store and make a new queue and a new store. Calls
  ///   that wait for outcomes go on waiting, so look at what the run throws, as a task group does.
  public nonisolated func run() async throws { try await run(.untilStopped) }

  /// Performs what is available now, and returns when it is done.
  ///
  /// A task that fails is not tried again in the same pass, even if its retry is due at once. What is
  /// enqueued during the pass, by its handlers too, is available only from a later date than that of
  /// the call, and left for the next pass. On a clock that stands still during the pass, as in a test,
  /// it is performed too. ``waitUntilIdle()`` beside ``run()`` waits for all of it.
  ///
  /// - Returns: the number of attempts; 0 if the queue is paused.
  /// - Throws: as ``run()``.
  @discardableResult
  public nonisolated func runAvailable() async throws -> Int {
    let horizon = machine.withLock { $0.nextHorizon(now: now) }
    return try await run(.pass(horizon: horizon))
  }

  /// Returns the number of attempts.
  @discardableResult
  private nonisolated func run(_ mode: WorkMachine.Mode) async throws -> Int {
    try await open()
    let use = store.useIfKnown
    let names = handlers.names
    try machine.withLock { machine in
      try machine.checkCanBegin()
      try use?.begin(name, on: store)
      machine.begin(mode, names: names)
      isPassing.store(mode != .untilStopped, ordering: .sequentiallyConsistent)
    }
    await beginRun()
    await RealWork.waiting({ _ in self.whyRunGoesOn }) { await work(mode) }
    let (failure, wasCancelled, hasEnded, attemptCount) = machine.withLock { machine in
      machine.end()
      // Whoever learns that the run has ended may run another queue on the store at once.
      use?.end()
      return (machine.failure, machine.wasCancelled, machine.hasEnded, machine.attemptCount)
    }
    stepWhilePaused.resumeAll(with: .success(()))
    runEnd.resumeAll(with: .success(()))
    idleWatch.step()
    if hasEnded { end() }
    if let failure { throw failure }
    if wasCancelled { throw CancellationError() }
    return attemptCount
  }

  /// Keeps what a failed run left over, drops what is kept no longer, says what can't be performed.
  private nonisolated func beginRun() async {
    await settleAll()
    do {
      for change in pruning.withLock({ $0.changes(now: now) }) {
        guard case .prune(let state, _, _) = change,
          try await store.count(matching: TaskFilter(states: [state])) > 0
        else { continue }
        _ = try await store.apply([change], durability: .relaxed)
      }
      try await tellUnhandledAtBeginning()
    } catch {
      fail(error, to: "look after the tasks it keeps")
    }
  }

  private nonisolated func work(_ mode: WorkMachine.Mode) async {
    guard let sharing = store.sharing else { return await workAndServe(mode) }
    await extendingLeases(sharing) { await workAndServe(mode) }
  }

  private nonisolated func workAndServe(_ mode: WorkMachine.Mode) async {
    await withDiscardingTaskGroup { services in
      services.addTask { await self.keepToShutDownLimit() }
      if mode == .untilStopped {
        services.addTask { await self.alarm.run(on: self.clock) { self.wake.fire() } }
      }
      if !store.appliesAtOnce { services.addTask { await self.finishLoop() } }
      if let sharing = store.sharing {
        services.addTask { await self.lookForOthersTasks(sharing) }
      }
      // No worker throws: a child that throws would cancel its siblings' handlers.
      await withDiscardingTaskGroup { workers in
        for worker in interrupts.indices {
          workers.addTask { await self.work(worker) }
        }
      }
      await settleAll()
      await putBack(machine.withLock { $0.takeUnbegun() })
      services.cancelAll()
    }
  }

  // MARK: Workers

  /// Works until there is nothing to do any more.
  ///
  /// A task that was cancelled stays so: a child whose attempt is cut short ends with it, and
  /// another goes on in its place.
  private nonisolated func work(_ worker: Int) async {
    var goesOn = true
    while goesOn {
      goesOn = await withTaskGroup(of: WorkerEnd?.self) { group in
        group.addTask { await WorkerMark.around(self, worker) { await self.workLoop(worker) } }
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

  private enum WorkerEnd { case done, interrupted }

  private static let attemptsBeforeYielding = 256

  /// Returns when the worker's attempt is to be cut short, or when cancelled.
  private nonisolated func waitForInterrupt(of worker: Int) async {
    while !Task.isCancelled {
      await interrupts[worker].wait()
      if machine.withLock({ $0.isInterrupted(worker) }) { return }
    }
  }

  /// Tells those who have asked for it that the worker's attempt is cut short.
  private nonisolated func wasInterrupted(_ worker: Int) {
    machine.withLock { $0.wasInterrupted(worker) }
    interruption.resumeAll(with: .success(()))
  }

  private nonisolated func workLoop(_ worker: Int) async -> WorkerEnd {
    var attempts = 0
    var step = nextStep(of: worker)
    while true {
      switch step {
      case .stop:
        wake.fireAll()
        return .done
      case .wait:
        await wake.wait()
      case .claim(let limit, let names):
        step = await claim(limit, unparking: names, by: worker)
        continue
      case .perform(let task, let number, let wakesAnother):
        if wakesAnother { wake.fire() }
        await catchUp(with: task.record.id)
        if await perform(task, worker, number) { return .interrupted }
        attempts += 1
        // Neither a store in memory nor a handler need ever suspend; others want the thread too.
        if attempts.isMultiple(of: Self.attemptsBeforeYielding) { await Task.yield() }
      case .obey(let directive, let task, let wakesAnother):
        if wakesAnother { wake.fire() }
        await catchUp(with: task.record.id)
        let settlement = judge.settlement(.obey(directive), of: task, now: now)
        await finish(settlement, worker, isAttempt: false)
      }
      step = nextStep(of: worker)
    }
  }

  /// Returns when all is told that has happened to a task until now.
  private nonisolated func catchUp(with id: TaskID) async {
    await changes.waitUntilAllIsTold(of: id)
    hub.announce(id)
  }

  /// What a worker does next, after the machine was told of an event, which says whether there is a
  /// next step at once.
  nonisolated func nextStep(
    of worker: Int,
    after event: (inout WorkMachine) -> Bool = { _ in true }
  ) -> WorkMachine.Step {
    let isCancelled = Task.isCancelled
    let (step, isPaused) = machine.withLock { machine in
      let goesOn = event(&machine)
      if isCancelled { machine.cancel() }
      return (goesOn ? machine.next(for: worker) : .wait, machine.isPaused)
    }
    if isPaused {
      stepWhilePaused.resumeAll(with: .success(()))
      idleWatch.step()
    }
    return step
  }

  /// In a pass, the date that decides what is available.
  nonisolated var horizon: Date? { machine.withLock { $0.horizon } }
}
