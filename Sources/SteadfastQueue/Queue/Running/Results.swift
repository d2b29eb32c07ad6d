import Synchronization
import SystemFoundation

/// Stores the results of attempts, and the changes to tasks that callers request, and then reports
/// them to observers and waiting callers.
///
/// A ``Settlement`` is a change to a task, such as `succeed`, `retry` or `release`, together with
/// the task's record before the change. Settlements that are not stored yet are in the outbox of
/// the ``WorkMachine``. The *finisher* is the Swift task of a run that stores them.
final class Results: QueuePart {
  let services: QueueServices
  let upkeep: Upkeep

  init(_ upkeep: Upkeep) {
    services = upkeep.services
    self.upkeep = upkeep
  }
}

extension Results {
  /// Makes a worker idle, and stores the settlement of its task, or lets another Swift task (the
  /// run's finisher) store it.
  func finishWork(of worker: Int, with settlement: Settlement, countsAsAttempt: Bool) async {
    if store.appliesAtOnce {
      await storeOrDefer(CollectionOfOne(settlement))
      let request = dispatch.machine.withLock {
        $0.freeWorker(worker, countsAsAttempt: countsAsAttempt)
      }
      if let request { await carryOutPending([request]) }
    } else if dispatch.machine.withLock({
      $0.freeWorker(worker, with: settlement, countsAsAttempt: countsAsAttempt)
    }) {
      // In a cancelled run, the finisher has already ended. So store the settlement here.
      if Task.isCancelled { await settleAll() } else { dispatch.signals.finisher.signal() }
    }
  }

  func runFinisher() async {
    while !Task.isCancelled {
      await settleAll()
      await dispatch.signals.finisher.wait()
    }
    await settleAll(isLast: true)
    // Let `storeRemainingResults()` return. A cancelled run does not wait for commands that other
    // callers are carrying out.
    dispatch.signals.settlement.resumeAll(with: .success(()))
  }

  /// Stores all settlements in the outbox, and retries the commands that could not be carried out.
  ///
  /// - Parameter isLast: whether no later call in this run stores settlements that are left over.
  func settleAll(isLast: Bool = false) async {
    let failedCommands = dispatch.machine.withLock { $0.takeFailedCommands() }
    if !failedCommands.isEmpty { await carryOutPending(failedCommands, isLast: isLast) }
    while let settlements = dispatch.machine.withLock({ $0.takeOutbox() }) {
      let isDeferred = await storeOrDefer(settlements, isLast: isLast)
      let (wakesWorkers, requests) = dispatch.machine.withLock { $0.finishStoring() }
      if storage.retryingStore != nil { dispatch.signals.settlement.resumeAll(with: .success(())) }
      if wakesWorkers { dispatch.signals.workers.signalAll() }
      await carryOutPending(requests, isLast: isLast)
      if isDeferred { return dispatch.signals.finisher.signal() }
    }
  }

  /// Stores the remaining settlements, and waits for commands that are being carried out.
  ///
  /// A run calls this after its workers have ended, and before it cancels the finisher.
  func storeRemainingResults() async {
    await settleAll(isLast: true)
    guard storage.retryingStore != nil else { return }
    func isCarryingOut() -> Bool {
      !Task.isCancelled
        && dispatch.machine.withLock { $0.failure == nil && !$0.commandsUnderWay.isEmpty }
    }
    while dispatch.machine.withLock({ $0.failure == nil && !$0.outbox.isEmpty }) || isCarryingOut()
    {
      await dispatch.signals.settlement.waitUncancelled {
        isCarryingOut() || dispatch.machine.withLock { $0.outbox.isStoring } ? nil : ()
      }
      await settleAll(isLast: true)
    }
  }

  /// Stores settlements, and reports them; puts them back into the outbox if the store fails.
  ///
  /// - Returns: Whether the finisher must store the settlements: the store is temporarily
  ///   unavailable, and this Swift task is cancelled, so it can't wait.
  @discardableResult
  private func storeOrDefer(
    _ settlements: some RandomAccessCollection<Settlement> & Sendable,
    isLast: Bool = false
  ) async -> Bool {
    let hasCommands = store.sharing != nil
    let shared = settlements.filter {
      // Because of a command, a task that this change would remove may stay in the store.
      $0.mayRaceWithOtherReports || hasCommands && $0.change.leaseEndedWithoutSuccess != nil
    }.map(\.record.id)
    if !shared.isEmpty { await observers.changes.beginAttemptResults(of: shared) }
    defer { if !shared.isEmpty { observers.changes.markAttemptResultsReported(of: shared) } }
    do {
      var commanded = try await storeAndReport(settlements)
      while !commanded.isEmpty { commanded = try await storeAndReport(commanded) }
    } catch {
      // If this Swift task is cancelled, perhaps only its attempt was cut short, and the run with
      // its finisher continues.
      let isDeferred = dispatch.machine.withLock { machine in
        machine.returnToOutbox(Array(settlements))
        return !isLast && error.isTransientFailure && Task.isCancelled && machine.finisherCanWait
      }
      if isDeferred { return true }
      lookAgain(after: error)
      dispatch.fail(error, to: "store how tasks ended", losing: true)
    }
    return false
  }

  /// Stores settlements, and reports them.
  ///
  /// - Returns: The settlements to store instead of those that the store has refused, because other
  ///   processes have stored commands for their tasks.
  @inline(__always)
  private func storeAndReport(
    _ settlements: some RandomAccessCollection<Settlement> & Sendable
  ) async throws -> [Settlement] {
    var batch = settlements.map(\.change)
    batch += upkeep.prunings(after: settlements)
    let results = try await storage.persist(batch)
    var commanded: [Settlement] = []
    // Usually all settlements were stored. Then avoid making an array.
    if zip(settlements, results).allSatisfy({ $1.isDone }) {
      reportStored(settlements)
    } else {
      reportStored(zip(settlements, results).filter { $1.isDone }.map(\.0))
      commanded = settlementsOfCommands(insteadOf: settlements, outcomes: results)
    }
    let consequences = consequences(of: settlements, outcomes: results)
    if !consequences.isEmpty { await reportConsequences(consequences) }
    for case (let settlement, .superseded(let successor)) in zip(settlements, results) {
      await reportSuperseded(settlement, by: successor)
    }
    return commanded
  }

  /// Returns a settlement that carries out the command for each task whose settlement was refused
  /// because of a command.
  private func settlementsOfCommands(
    insteadOf settlements: some Collection<Settlement>,
    outcomes results: [ChangeOutcome]
  ) -> [Settlement] {
    zip(settlements, results).compactMap { settlement, result in
      guard case .commanded(let command) = result, let lease = settlement.change.lease else {
        return nil
      }
      return judge.settlement(of: settlement, lease, carryingOut: command, now: now)
    }
  }

  private func reportSuperseded(_ settlement: Settlement, by successor: TaskID) async {
    let isAwaited = observers.reportSuperseded(settlement, by: successor)
    lookForWork(after: settlement)
    // The successor may have ended before callers were linked to it. Ignore an error of the store:
    // the next claim fails, too, and stops the queue.
    if isAwaited { try? await reportStoredOutcomes(of: [successor]) }
  }

  func consequences(
    of settlements: some Collection<Settlement>,
    outcomes results: [ChangeOutcome]
  ) -> [(settlement: Settlement, meaning: Consequences)] {
    zip(settlements, results).compactMap { settlement, result in
      result.consequences.map { (settlement: settlement, meaning: $0) }
    }
  }

  /// Releases claimed tasks that have not started.
  func releaseUnstarted(_ tasks: [ClaimedTask], isLast: Bool = false) async {
    guard !tasks.isEmpty else { return }
    let isDeferred = await storeOrDefer(
      tasks.map {
        Settlement(change: .release($0.lease), record: $0.record, wasBegun: false)
      },
      isLast: isLast
    )
    if isDeferred { dispatch.signals.finisher.signal() }
    let requests = dispatch.machine.withLock { $0.finishRelease(of: tasks) }
    await carryOutPending(requests, isLast: isLast)
  }

  /// Reports stored settlements, and makes workers look for tasks that became available by them.
  func reportStored(_ settlements: some Collection<Settlement>) {
    observers.report(settlements)
    for settlement in settlements { lookForWork(after: settlement) }
  }

  private func lookForWork(after settlement: Settlement) {
    // The next task with the same order key may be available now.
    if settlement.record.orderKey != nil { dispatch.lookForWork() }
    switch settlement.change {
    case .move(_, let move): lookForWork(after: move, settlement)
    case .update: dispatch.lookForWork(at: settlement.record.availableDate)
    case .memory(.suspend(_, let date, let names, _)):
      // If the task waits for completions (`names`), one may have arrived already.
      dispatch.lookForWork(at: names.isEmpty ? date : .distantPast)
    case .memory(.complete): dispatch.lookForWork()
    case .end, .remove:
      // The next task with the same unique key may be available now.
      if settlement.record.uniqueKey != nil { dispatch.lookForWork() }
      if settlement.record.id.isOccurrence { checkSchedules(after: settlement) }
    case .insert, .extend, .command, .memory(.remember), .broad, .setValue: break
    }
  }

  /// Lets a run check the schedules if an occurrence was cancelled or removed, perhaps before it
  /// began: then the schedule must advance.
  private func checkSchedules(after settlement: Settlement) {
    // A claimed occurrence that does not begin has advanced its schedule, or is no longer in one.
    guard settlement.wasBegun else { return }
    if let end = settlement.change.end, end.state != .cancelled { return }
    let owner = otherQueue(of: settlement.record).flatMap(queue)?.upkeep ?? upkeep
    owner.state.withLock { $0.schedulesAreDue = true }
    owner.dispatch.lookForWork()
  }

  private func lookForWork(after move: TaskMove, _ settlement: Settlement) {
    if move.kind == .restart || move.kind == .resume {
      upkeep.scheduleWarningIfUnhandled(settlement.record)
    }
    switch move.kind {
    case .retry, .release, .resume, .restart, .reschedule:
      dispatch.lookForWork(at: move.availableDate ?? settlement.record.availableDate)
    case .park:
      // The task is parked because its handler could not decode the payload. If another handler was
      // registered before the task was parked, let that handler try.
      let name = settlement.record.name
      guard let handler = handlers[name], handler !== settlement.handler else { break }
      dispatch.machine.withLock { $0.registerHandlers(for: [name]) }
      dispatch.signals.workers.signal()
    case .pause: break
    }
  }
}

extension Results {
  /// Releases the claimed tasks that satisfy `shouldRelease` and have not started.
  ///
  /// A claim in flight may still return such tasks. So the call waits for that claim, and then
  /// releases its tasks, too. A cancelled caller doesn't wait.
  func releaseUnstarted(where shouldRelease: @Sendable (TaskRecord) -> Bool) async {
    await releaseUnstarted(dispatch.machine.withLock { $0.takeUnstarted(where: shouldRelease) })
    if let claim = dispatch.machine.withLock({ $0.claims.inFlight }) {
      await waitForEnd(ofClaim: claim)
    }
    await releaseUnstarted(dispatch.machine.withLock { $0.takeUnstarted(where: shouldRelease) })
  }

  /// Waits until the claim with this number has ended, or until cancelled.
  private func waitForEnd(ofClaim claim: Int) async {
    while !Task.isCancelled, dispatch.machine.withLock({ $0.claims.inFlight == claim }) {
      try? await dispatch.signals.claimEnd.wait {
        dispatch.machine.withLock { $0.claims.inFlight == claim } ? nil : .success(())
      }
    }
  }
}

/// The consequences of changes for other tasks.
extension Results {
  /// Reports how stored changes affected other tasks: which were cancelled or restarted along with
  /// the changed tasks.
  func reportConsequences(
    _ consequences: some Sequence<(settlement: Settlement, meaning: Consequences)>
  ) async {
    var ids: [TaskID] = []
    for (settlement, meaning) in consequences {
      reportConsequences(meaning, of: settlement)
      ids += meaning.tasks
      // A task that waited for the changed one may be available now.
      dispatch.lookForWork()
    }
    // The affected tasks may have changed again before this report, so look them up. Ignore an
    // error of the store: the next claim fails, too, and stops the queue.
    if !ids.isEmpty { try? await correctOutcomes(of: ids) }
  }

  /// Tells this queue's waiting callers about the consequences of a change that another queue of
  /// the group has made.
  ///
  /// This posts no events, because the other queue does. The affected tasks may belong to any
  /// queue.
  func applyConsequences(_ meaning: Consequences, of change: TaskChange) async {
    for id in meaning.tasks {
      switch change {
      case .end(_, let end) where end.state != .succeeded:
        observers.outcomes.resolve(id, .cancelled)
      // `correctOutcomes(of:)` below looks up whether a restarted task has ended again.
      default: break
      }
    }
    dispatch.lookForWork()
    if !meaning.tasks.isEmpty { try? await correctOutcomes(of: meaning.tasks) }
  }

  /// Makes the workers of each queue in the group look for work, because a claim during a failed
  /// call may have skipped the tasks that the call was to change.
  ///
  /// After an error that is not transient, only the store knows what is stored. The next claim of
  /// each queue then looks up which awaited tasks have ended.
  func lookAgain(after error: any Error) {
    for queue in [self] + (storage.group?.otherQueues.map(\.results) ?? []) {
      if !error.isTransientFailure {
        queue.observers.mayHaveUnreportedOutcomes.store(true, ordering: .releasing)
        queue.upkeep.state.withLock { state in
          state.outcomesAreDue = true
          state.schedulesAreDue = true
        }
      }
      queue.dispatch.lookForWork()
    }
  }

  /// Looks up which awaited tasks have ended, and resumes the callers that wait for them.
  ///
  /// If the store throws an error, the next claim calls this again.
  func lookUpDueOutcomes() async throws {
    upkeep.state.withLock { $0.outcomesAreDue = false }
    do {
      try await reportStoredOutcomes(of: observers.outcomes.awaited)
    } catch {
      upkeep.state.withLock { $0.outcomesAreDue = true }
      throw error
    }
  }

  private func reportConsequences(_ meaning: Consequences, of settlement: Settlement) {
    let cause = settlement.record.id
    if let batch = meaning.batch, let follower = settlement.record.dependencies.follower {
      observers.events.post(.batchProgressed(followedBy: follower, batch))
    }
    for id in meaning.tasks {
      switch settlement.change {
      case .end(_, let end) where end.state != .succeeded:
        observers.reportCancellation(of: id, becauseOf: cause)
      case .move(_, let move) where move.kind == .restart:
        observers.reportRestart(of: id)
        upkeep.state.withLock { $0.warning.makeCheckDue() }
      default: break
      }
    }
  }

  /// Looks up the outcomes of tasks in the store, and replaces the outcomes that are known here.
  ///
  /// If another outcome of a task is reported during the look-up, it may be newer than the one that
  /// the look-up finds. Then this looks the task up again.
  private func correctOutcomes(of ids: [TaskID]) async throws {
    var remaining = ids
    while !remaining.isEmpty {
      var outdated: [TaskID] = []
      for page in remaining.lookUpPages {
        let versions = observers.outcomes.versions(of: page)
        let filter = TaskFilter(ids: Set(page))
        let records = try await store.tasks(matching: filter, after: nil, limit: page.count)
        for record in records
        where !correctOutcome(from: record, ifVersionIs: versions[record.id]) {
          outdated.append(record.id)
        }
      }
      remaining = outdated
    }
  }

  /// Replaces the known outcome of a task with the outcome in its record.
  ///
  /// - Returns: `false`, with no effect, if another outcome was reported since the look-up of the
  ///   record began.
  private func correctOutcome(from record: TaskRecord, ifVersionIs version: Int?) -> Bool {
    guard let outcome = record.outcome else {
      return observers.outcomes.reopen(record.id, ifVersionIs: version)
    }
    return observers.outcomes.resolve(record.id, outcome, ifVersionIs: version)
  }
}

/// Outcomes of tasks that other processes have ended.
extension Results {
  /// Looks up which awaited tasks another process has ended, and resumes the callers that wait for
  /// them.
  func refreshAwaitedOutcomes() async {
    do {
      try await reportStoredOutcomes(of: observers.outcomes.awaited)
    } catch {
      dispatch.fail(error, to: "look up tasks")
    }
  }

  /// Looks up the outcomes of tasks in the store, and resumes the callers that wait for the tasks
  /// that have ended.
  func reportStoredOutcomes(of ids: [TaskID]) async throws {
    for page in ids.lookUpPages { try await reportStoredOutcomes(ofPage: page) }
  }

  private func reportStoredOutcomes(ofPage ids: ArraySlice<TaskID>) async throws {
    let filter = TaskFilter(ids: Set(ids))
    let versions = observers.outcomes.versions(of: ids)
    let records = try await store.tasks(matching: filter, after: nil, limit: ids.count)
    // If this queue is just storing the end of a task, the queue reports it. Don't report a success
    // here before that, because it would lack the handler's return value.
    func isReported(_ id: TaskID) -> Bool {
      dispatch.machine.withLock { $0.isUnsettled(id) } || observers.changes.isUnderWay(id)
    }
    for record in records {
      guard let outcome = record.outcome, outcome != .succeeded || !isReported(record.id) else {
        continue
      }
      observers.outcomes.resolve(record.id, outcome, ifVersionIs: versions[record.id])
    }
    let found = Set(records.map(\.id))
    for id in ids where !found.contains(id) && !isReported(id) {
      observers.outcomes.failWaiters(
        of: id,
        with: Results.unknownTaskError(id),
        ifVersionIs: versions[id]
      )
    }
  }

  static func unknownTaskError(_ id: TaskID) -> TaskQueueError {
    TaskQueueError(
      .unknownTask,
      "the task \(id) no longer exists: it has ended, and its outcome was not retained; to retain "
        + "outcomes, set succeededRetention and cancelledRetention in the configuration of each queue "
        + "on the store"
    )
  }
}
