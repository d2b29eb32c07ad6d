import Synchronization
import SystemFoundation

/// Stores the ends of attempts and the changes that callers request, and then reports them.
final class Results: QueuePart {
  let services: QueueServices
  let upkeep: Upkeep
  let occurrences: Occurrences

  init(_ occurrences: Occurrences) {
    services = occurrences.services
    upkeep = occurrences.upkeep
    self.occurrences = occurrences
  }
}

/// Stores and reports how attempts ended.
extension Results {
  /// Makes a worker idle, and stores its settlement, or leaves that to the finisher.
  ///
  /// The finisher is the Swift task that runs `runFinisher()`.
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
      // In a cancelled run, the finisher has ended, and other handlers may take long to end. So
      // this Swift task stores the settlement itself.
      if Task.isCancelled { await settleAll() } else { dispatch.signals.finisher.signal() }
    }
  }

  func runFinisher() async {
    while !Task.isCancelled {
      await settleAll()
      await dispatch.signals.finisher.wait()
    }
    await settleAll(isLast: true)
    // A cancelled run ends without waiting for other callers' requests.
    dispatch.signals.settlement.resumeAll(with: .success(()))
  }

  /// Stores all settlements in the outbox, and retries the requests that could not be carried out.
  ///
  /// - Parameter isLast: whether the run ends, so that no later call in the run stores the rest.
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

  /// When a run's workers have ended, stores the remaining settlements and carries out the
  /// remaining requests.
  func storeRemainingResults() async {
    await settleAll(isLast: true)
    guard storage.retryingStore != nil else { return }
    // The finisher may be waiting for the store. The caller cancels it after this function.
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

  /// Stores settlements.
  ///
  /// - Returns: Whether the caller must leave the settlements to the finisher, because the store is
  ///   temporarily unavailable and this Swift task can't wait.
  @discardableResult
  private func storeOrDefer(
    _ settlements: some RandomAccessCollection<Settlement> & Sendable,
    isLast: Bool = false
  ) async -> Bool {
    var batch = settlements.map(\.change)
    batch += upkeep.prunings(after: settlements)
    let shared = settlements.filter(\.mayMeetOthers).map(\.record.id)
    if !shared.isEmpty { await observers.changes.beginAttemptEnds(of: shared) }
    defer { if !shared.isEmpty { observers.changes.markAttemptEndsReported(of: shared) } }
    do {
      // Usually no occurrence ends. In that case, avoid one more asynchronous call.
      let ends = OccurrenceEnd.all(in: settlements)
      let answer =
        try await ends.isEmpty ? storage.send(batch) : occurrences.send(batch, ending: ends)
      let isInDoubt = answer.wasResent || settlements.contains(where: \.isInDoubt)
      let results =
        try await isInDoubt
        ? reconciledOutcomes(in: answer, of: settlements) : answer.outcomes
      // Usually all settlements were stored. In that case, avoid making an array.
      if zip(settlements, results).allSatisfy({ $1.isDone }) {
        reportStored(settlements)
      } else {
        reportStored(zip(settlements, results).filter { $1.isDone }.map(\.0))
      }
      let consequences = consequences(of: settlements, outcomes: results)
      if !consequences.isEmpty { await reportConsequences(consequences) }
      for case (let settlement, .superseded(let successor)) in zip(settlements, results) {
        await reportSuperseded(settlement, by: successor)
      }
      if isInDoubt, results != answer.outcomes { await findLostConsequences() }
    } catch {
      // Although this Swift task is cancelled, the run may continue: perhaps only the attempt was
      // cut short.
      let isDeferred = dispatch.machine.withLock { machine in
        machine.returnToOutbox(Array(settlements))
        return !isLast && error.isTransientFailure && Task.isCancelled && machine.finisherCanWait
      }
      if isDeferred { return true }
      dispatch.fail(error, to: "store how tasks ended", losing: true)
    }
    return false
  }

  private func reportSuperseded(_ settlement: Settlement, by successor: TaskID) async {
    let isAwaited = observers.reportSuperseded(settlement, by: successor)
    findWork(after: settlement)
    // The successor may have ended before its callers were linked to it. If the store fails, the
    // next claim stops the queue.
    if isAwaited { try? await reportStoredOutcomes(of: [successor]) }
  }

  /// Returns the consequences of stored changes for other tasks.
  func consequences(
    of settlements: some Collection<Settlement>,
    outcomes results: [ChangeOutcome]
  ) -> [(settlement: Settlement, meaning: Consequences)] {
    zip(settlements, results).compactMap { settlement, result in
      result.consequences.map { (settlement: settlement, meaning: $0) }
    }
  }

  /// Returns the outcomes of settlements, with `done` instead of `stale` for each change that an
  /// earlier try has stored.
  ///
  /// That happens if the store threw an error although it had stored the change, or if the change
  /// was sent again.
  private func reconciledOutcomes(
    in answer: (outcomes: [ChangeOutcome], wasResent: Bool),
    of settlements: some Collection<Settlement> & Sendable
  ) async throws -> [ChangeOutcome] {
    // In a shared store, another process may have ended the task. Then `refreshAwaitedOutcomes()`
    // looks up the outcome for waiting callers.
    let isAlone = !dispatch.leasesMayHaveRunOut
    var results = answer.outcomes
    for (index, settlement) in settlements.enumerated()
    where answer.wasResent || settlement.isInDoubt {
      guard results[index] == .stale else { continue }
      let record = try await storage.record(of: settlement.record.id)
      if settlement.change.wasStored(accordingTo: record, excludesOtherQueues: isAlone) {
        results[index] = .done
      } else if isAlone, record == nil {
        if let successor = try await holderOfKey(of: settlement.record) {
          results[index] = .superseded(by: successor)
        } else {
          let id = settlement.record.id
          observers.outcomes.failWaiters(of: id, with: Results.unknownTaskError(id))
        }
      }
    }
    return results
  }

  /// Returns the task that now holds the unique key of a task that no longer exists.
  private func holderOfKey(of record: TaskRecord) async throws -> TaskID? {
    guard let key = record.uniqueKey else { return nil }
    let filter = TaskFilter(
      names: [record.name],
      states: TaskState.unfinished,
      uniqueKeys: [key]
    )
    let found = try await store.tasks(matching: filter, after: nil, limit: 2)
    return found.first { $0.keyRole == .holder }?.id
  }

  /// Releases tasks that were claimed but not begun.
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

  /// Reports stored settlements, and looks for tasks that they made available.
  func reportStored(_ settlements: some Collection<Settlement>) {
    observers.report(settlements)
    for settlement in settlements { findWork(after: settlement) }
  }

  private func findWork(after settlement: Settlement) {
    // Another task with the same order key may be first in line now.
    if settlement.record.orderKey != nil { dispatch.lookForWork() }
    switch settlement.change {
    case .retry(_, let date, _, _, _), .reschedule(_, let date, _):
      dispatch.becomesAvailable(at: date)
    case .restart(_, let date, _):
      upkeep.scheduleNoticeIfUnhandled(settlement.record)
      dispatch.becomesAvailable(at: date)
    case .resume:
      upkeep.scheduleNoticeIfUnhandled(settlement.record)
      dispatch.becomesAvailable(at: settlement.record.availableDate)
    case .suspend(_, let date, let names, _):
      // The awaited completion may have arrived already.
      dispatch.becomesAvailable(at: names.isEmpty ? date : .distantPast)
    case .complete: dispatch.lookForWork()
    case .release, .update: dispatch.becomesAvailable(at: settlement.record.availableDate)
    case .park:
      // Another handler may have been registered before the task was parked.
      let name = settlement.record.name
      guard let handler = handlers[name], handler !== settlement.handler else { break }
      dispatch.machine.withLock { $0.registerHandlers(for: [name]) }
      dispatch.signals.workers.signal()
    case .succeed, .abandon, .cancel, .remove:
      // The successor with the same unique key, if there is one, may be available now.
      if settlement.record.uniqueKey != nil { dispatch.lookForWork() }
    case .pause, .insert, .unpark, .extend, .prune, .rebase, .remember, .setValue: break
    }
  }
}

/// Claimed tasks without an attempt.
extension Results {
  /// Releases the claimed tasks that match `isMeant` and have not started.
  ///
  /// A claim in flight may still return matching tasks. So the call waits for that claim, and
  /// releases its matching tasks, too. A cancelled caller doesn't wait.
  func releaseUnstarted(where isMeant: @Sendable (TaskRecord) -> Bool) async {
    await releaseUnstarted(dispatch.machine.withLock { $0.takeUnstarted(where: isMeant) })
    if let claim = dispatch.machine.withLock({ $0.claims.inFlight }) {
      await waitForEnd(ofClaim: claim)
    }
    await releaseUnstarted(dispatch.machine.withLock { $0.takeUnstarted(where: isMeant) })
  }

  /// Waits until the claim with this number has ended, or until cancelled.
  private func waitForEnd(ofClaim claim: Int) async {
    while !Task.isCancelled, dispatch.machine.withLock({ $0.claims.inFlight == claim }) {
      // Cancellation ends the loop.
      try? await dispatch.signals.claimEnd.wait {
        dispatch.machine.withLock { $0.claims.inFlight == claim } ? nil : .success(())
      }
    }
  }
}

/// The consequences that changes to some tasks have for others.
extension Results {
  /// Reports consequences of changes that were stored.
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
    // The affected tasks may have changed again before this report. If the store fails here, the
    // next claim stops the queue.
    if !ids.isEmpty { try? await correctOutcomes(of: ids) }
  }

  /// Applies the consequences of a change that another queue on the store has made.
  ///
  /// The affected tasks may belong to this queue or to others. The other queue posts the events.
  func applyRemoteEffects(_ meaning: Consequences, of change: TaskChange) async {
    for id in meaning.tasks {
      switch change {
      case .abandon, .cancel: observers.outcomes.resolve(id, .cancelled)
      // The restarted task may have ended again by now. `correctOutcomes(of:)` looks that up below.
      case .restart: break
      case .succeed, .retry, .release, .park, .pause, .resume, .reschedule, .update, .remove,
        .insert, .unpark, .extend, .prune, .rebase, .remember, .suspend, .complete, .setValue:
        break
      }
    }
    dispatch.lookForWork()
    if !meaning.tasks.isEmpty { try? await correctOutcomes(of: meaning.tasks) }
  }

  /// Finds the consequences of changes whose answer was lost: the store had already made the
  /// changes when they were sent again.
  ///
  /// Waiting tasks may be available now, also in other queues of a group. Tasks that callers wait
  /// for may have been cancelled by a cascade.
  func findLostConsequences() async {
    for queue in resultsOfGroup {
      queue.dispatch.lookForWork()
      // If the store fails, the next claim stops the queue.
      try? await queue.reportStoredOutcomes(of: queue.observers.outcomes.awaited)
    }
  }

  /// The results of this queue, and of the others of its group.
  var resultsOfGroup: [Results] { [self] + (storage.group?.otherQueues.map(\.results) ?? []) }

  /// Handles a failed call of the store that may have stored its changes all the same.
  ///
  /// The next claim of each queue reports what was stored. The queues look for work, because a
  /// claim during the call may have skipped the tasks.
  func markOutcomesUncertain() {
    for queue in resultsOfGroup {
      queue.observers.mayHaveUnreportedOutcomes.store(true, ordering: .releasing)
      queue.upkeep.state.withLock { $0.isInDoubt = true }
      queue.dispatch.lookForWork()
    }
  }

  /// Reports the stored outcomes to waiting callers, after a failed call of the store that may have
  /// stored its changes.
  ///
  /// - Throws: Any error of the store; the next claim calls this again.
  func reconcileOutcomes() async throws {
    upkeep.state.withLock { $0.isInDoubt = false }
    do {
      try await reportStoredOutcomes(of: observers.outcomes.awaited)
    } catch {
      upkeep.state.withLock { $0.isInDoubt = true }
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
      case .abandon, .cancel: observers.reportCancellation(of: id, becauseOf: cause)
      case .restart:
        observers.reportRestart(of: id)
        upkeep.state.withLock { $0.notice.makeLookDue() }
      case .succeed, .retry, .release, .park, .pause, .resume, .reschedule, .update, .remove,
        .insert, .unpark, .extend, .prune, .rebase, .remember, .suspend, .complete, .setValue:
        break
      }
    }
  }

  /// Replaces the known outcomes of tasks by the stored outcomes.
  ///
  /// An outcome that is reported during a look-up may be newer than the outcome that the look-up
  /// finds. In that case, the task is looked up again.
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

  /// Replaces the known outcome of a task by the outcome in its record, unless another outcome was
  /// reported since the look-up began.
  ///
  /// - Returns: `false` if another outcome was reported.
  private func correctOutcome(from record: TaskRecord, ifVersionIs version: Int?) -> Bool {
    guard let outcome = record.outcome else {
      return observers.outcomes.reopen(record.id, ifVersionIs: version)
    }
    return observers.outcomes.resolve(record.id, outcome, ifVersionIs: version)
  }
}

/// Outcomes of tasks that other processes have ended.
extension Results {
  /// Looks up awaited tasks that another process may have ended, and resumes their waiters.
  func refreshAwaitedOutcomes() async {
    do {
      try await reportStoredOutcomes(of: observers.outcomes.awaited)
    } catch {
      dispatch.fail(error, to: "look up tasks")
    }
  }

  /// Reports the stored outcomes of tasks whose ends were not reported to this queue.
  ///
  /// - Throws: Any error of the store.
  func reportStoredOutcomes(of ids: [TaskID]) async throws {
    for page in ids.lookUpPages { try await reportStoredOutcomes(ofPage: page) }
  }

  private func reportStoredOutcomes(ofPage ids: ArraySlice<TaskID>) async throws {
    let filter = TaskFilter(ids: Set(ids))
    let versions = observers.outcomes.versions(of: ids)
    let records = try await store.tasks(matching: filter, after: nil, limit: ids.count)
    // The call that stores the end of a task reports the end itself, and a success with its value.
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
        + "outcomes, set succeededRetention and cancelledRetention in each queue on the store"
    )
  }
}
