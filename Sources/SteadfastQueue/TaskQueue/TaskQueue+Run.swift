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
  ///   if the queue runs already, was shut down, or its store has failed. After a failure of the
  ///   store, nothing acknowledged is lost, and the queue can be run again.
  public nonisolated func run() async throws { try await run(.untilStopped) }

  /// Performs what is available now, and returns when it is done.
  ///
  /// A task that fails is not tried again in the same pass, even if its retry is due at once. What
  /// handlers enqueue is performed too if it is available at the date of the call.
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
    let names = handlers.names
    try machine.withLock { machine in try machine.begin(mode, names: names) }
    await beginRun()
    await work(mode)
    let (failure, wasCancelled, hasEnded, attemptCount) = machine.withLock { machine in
      machine.end()
      return (machine.failure, machine.wasCancelled, machine.hasEnded, machine.attemptCount)
    }
    runEnd.resumeAll(with: .success(()))
    if hasEnded { outcomes.failWaiters(Self.shutDownError) }
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
      guard hub.isObserved, handlers.room.others == 0 else { return }
      let unhandled = try await store.tasks(
        matching: TaskFilter(excludedNames: Set(handlers.names), states: [.waiting]),
        after: nil,
        limit: 100
      )
      for record in unhandled { postUnhandled(record) }
    } catch {
      fail(error, to: "look after the tasks it keeps")
    }
  }

  private nonisolated func work(_ mode: WorkMachine.Mode) async {
    await withDiscardingTaskGroup { services in
      if mode == .untilStopped {
        services.addTask { await self.alarm.run(on: self.clock) { self.wake.fire() } }
      }
      if !store.appliesAtOnce { services.addTask { await self.finishLoop() } }
      if let sharing = store.sharing {
        services.addTask { await self.extendLeases(sharing) }
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
        group.addTask { await self.workLoop(worker) }
        group.addTask {
          await self.waitForInterrupt(of: worker)
          return nil
        }
        var end: WorkerEnd?
        for await result in group {
          end = end ?? result
          group.cancelAll()
        }
        return end == .interrupted
      }
    }
  }

  private enum WorkerEnd { case done, interrupted }

  /// Returns when the worker's attempt is to be cut short, or when cancelled.
  private nonisolated func waitForInterrupt(of worker: Int) async {
    while !Task.isCancelled {
      await interrupts[worker].wait()
      if machine.withLock({ $0.isInterrupted(worker) }) { return }
    }
  }

  private nonisolated func workLoop(_ worker: Int) async -> WorkerEnd {
    while true {
      if Task.isCancelled { machine.withLock { $0.cancel() } }
      switch machine.withLock({ $0.next(for: worker) }) {
      case .stop:
        wake.fireAll()
        return .done
      case .wait:
        await wake.wait()
      case .claim(let limit, let names):
        if await !claim(limit, unparking: names) { await wake.wait() }
      case .perform(let task, let number, let wakesAnother):
        if wakesAnother { wake.fire() }
        if await perform(task, worker, number) { return .interrupted }
      case .obey(let directive, let task):
        _ = machine.withLock { $0.endAttempt(of: worker) }
        let settlement = judge.settlement(.obey(directive), of: task, now: now)
        await finish(settlement, worker, isAttempt: false)
      }
    }
  }

  /// Whether there is a next step at once.
  private nonisolated func claim(
    _ limit: Int,
    unparking parked: WorkMachine.ParkedNames
  ) async -> Bool {
    do {
      try await rebaseIfDateWentBack()
      try await unpark(parked)
      let now = horizon ?? self.now
      let handled = handlers.room
      let claim = try await store.claim(
        ClaimRequest(
          limit: limit,
          names: machine.withLock { $0.room(in: handled.names) },
          otherNames: handled.others,
          now: now,
          leaseEnd: leaseEnd
        )
      )
      if let date = claim.nextDate, date > now { alarm.set(date) }
      return machine.withLock { $0.claimed(claim, now: now) }
    } catch {
      fail(error, to: "hand out tasks")
      return true
    }
  }

  /// Keeps retries from waiting for a date that the system's clock has left behind.
  private nonisolated func rebaseIfDateWentBack() async throws {
    let now = self.now
    let (isFirst, wentBack) = dates.withLock { ($0.isUnused, $0.wentBack(to: now)) }
    guard wentBack else { return }
    machine.withLock { $0.dateWentBack(to: now) }
    // A store that was just opened has not taken the date that was left for that of its claims.
    if isFirst, try await store.count(matching: .unfinished) == 0 { return }
    _ = try await store.apply([.rebase(now)], durability: .relaxed)
  }

  private nonisolated func unpark(_ parked: WorkMachine.ParkedNames) async throws {
    let isParked = TaskFilter(states: [.parked])
    guard parked != WorkMachine.ParkedNames(), try await store.count(matching: isParked) > 0 else {
      return
    }
    var names = parked.names
    if parked.others, handlers.room.others > 0 {
      let page = try await store.tasks(matching: isParked, after: nil, limit: 10_000)
      names.formUnion(page.map(\.name))
    }
    guard !names.isEmpty else { return }
    _ = try await store.apply(names.sorted().map { .unpark(name: $0) }, durability: .relaxed)
  }

  /// In a pass, the date that decides what is available.
  nonisolated var horizon: Date? {
    guard case .pass(let horizon) = machine.withLock({ $0.mode }) else { return nil }
    return horizon
  }

  // MARK: What attempts end in

  nonisolated func finish(
    _ settlement: Settlement,
    _ worker: Int,
    isAttempt: Bool
  ) async {
    if store.appliesAtOnce {
      await apply([settlement])
      machine.withLock {
        $0.finished(worker, name: settlement.record.name, isAttempt: isAttempt)
      }
    } else if machine.withLock({
      $0.finished(worker, with: settlement, isAttempt: isAttempt)
    }) {
      // The finisher of a cancelled run has gone, and other handlers may take long to end.
      if Task.isCancelled { await settleAll() } else { settle.fire() }
    }
  }

  private nonisolated func finishLoop() async {
    while !Task.isCancelled {
      await settleAll()
      await settle.wait()
    }
    await settleAll()
  }

  private nonisolated func settleAll() async {
    while let settlements = machine.withLock({ $0.takeOutbox() }) {
      await apply(settlements)
      if machine.withLock({ $0.settled() }) { wake.fireAll() }
    }
  }

  private nonisolated func apply(_ settlements: [Settlement]) async {
    let pruning = pruning.withLock { $0.changes(after: settlements, now: now) }
    do {
      let outcomes = try await store.apply(
        settlements.map(\.change) + pruning,
        durability: .durable
      )
      report(settlements, outcomes)
      for settlement in settlements { try await obeyRequest(for: settlement.record.id) }
    } catch {
      machine.withLock { $0.putBack(settlements) }
      fail(error, to: "keep how tasks ended")
    }
  }

  private nonisolated func putBack(_ tasks: [ClaimedTask]) async {
    guard !tasks.isEmpty else { return }
    await apply(tasks.map { Settlement(change: .release($0.lease), record: $0.record) })
  }

  private nonisolated func report(_ settlements: [Settlement], _ results: [ChangeOutcome]) {
    statisticsBoard.withLock { board in
      for (settlement, result) in zip(settlements, results) where result == .done {
        board.stored(settlement.change)
      }
    }
    for (settlement, result) in zip(settlements, results) where result == .done {
      report(settlement)
    }
  }

  /// Tells what has been stored of a task.
  nonisolated func report(_ settlement: Settlement) {
    let id = settlement.record.id
    if let outcome = settlement.outcome {
      outcomes.resolve(id, outcome, value: settlement.value)
    }
    if let event = settlement.event { hub.post(event) }
    switch settlement.change {
    case .retry(_, let date, _, let failure):
      if failure != nil { outcomes.report(0, of: id) }
      becomesAvailable(at: date)
    case .restart(_, let date):
      outcomes.reopen(id)
      becomesAvailable(at: date)
    case .resume: becomesAvailable(at: settlement.record.availableDate)
    case .succeed, .abandon, .cancel, .release, .park, .pause, .remove, .insert, .unpark, .extend,
      .prune, .rebase:
      break
    }
  }

  /// Sees to it that a worker looks when a task becomes available.
  nonisolated func becomesAvailable(at date: Date) {
    if date <= now {
      machine.withLock { $0.workArrived() }
      wake.fire()
    } else {
      alarm.set(date)
    }
  }

  nonisolated func fail(_ error: any Error, to operation: String) {
    let error = TaskQueueError(
      .storeFailed,
      "the queue '\(name)' has stopped, because its store (\(store)) could not \(operation): "
        + "\(error). Nothing acknowledged is lost; run it again when the fault is gone, with a new store if this one says so",
      underlying: error
    )
    machine.withLock { $0.fail(error) }
    wake.fireAll()
  }
}
