import Synchronization
import SystemFoundation

/// Stores the ends of attempts and the results of callers' requests, and then reports them.
final class Results: QueuePart {
  let services: QueueServices
  let upkeep: Upkeep
  let occurrences: Occurrences
  let storage: QueueStore
  let store: any Persistence
  let observers: Observers
  let dispatch: Dispatcher

  init(_ occurrences: Occurrences) {
    services = occurrences.services
    upkeep = occurrences.upkeep
    self.occurrences = occurrences
    storage = services.storage
    store = storage.front
    observers = services.observers
    dispatch = services.dispatch
  }
}

/// Stores how attempts ended, and then reports it.
extension Results {
  /// Stores how an attempt ended, or adds it to the outbox for the finisher.
  ///
  /// The finisher is the Swift task that runs `finishLoop()`.
  func finish(_ settlement: Settlement, _ worker: Int, isAttempt: Bool) async {
    if store.appliesAtOnce {
      await apply(CollectionOfOne(settlement))
      let request = dispatch.machine.withLock { $0.finished(worker, isAttempt: isAttempt) }
      if let request { await carryOut([request]) }
    } else if dispatch.machine.withLock({
      $0.finished(worker, with: settlement, isAttempt: isAttempt)
    }) {
      // The finisher of a cancelled run has ended, and other handlers may take long to end.
      if Task.isCancelled { await settleAll() } else { dispatch.signals.finisher.signal() }
    }
  }

  func finishLoop() async {
    while !Task.isCancelled {
      await settleAll()
      await dispatch.signals.finisher.wait()
    }
    await settleAll(isLast: true)
    // The end of a cancelled run does not wait for other callers' requests.
    dispatch.signals.settlement.resumeAll(with: .success(()))
  }

  /// Stores all settlements in the outbox, and retries the requests that could not be carried out.
  ///
  /// - Parameter isLast: whether the run ends, so that nothing else stores the rest.
  func settleAll(isLast: Bool = false) async {
    let failedCommands = dispatch.machine.withLock { $0.takeFailedCommands() }
    if !failedCommands.isEmpty { await carryOut(failedCommands, isLast: isLast) }
    while let settlements = dispatch.machine.withLock({ $0.takeOutbox() }) {
      let isDeferred = await apply(settlements, isLast: isLast)
      let (wakesWorkers, requests) = dispatch.machine.withLock { $0.settled() }
      if storage.retryingStore != nil { dispatch.signals.settlement.resumeAll(with: .success(())) }
      if wakesWorkers { dispatch.signals.workers.signalAll() }
      await carryOut(requests, isLast: isLast)
      if isDeferred { return dispatch.signals.finisher.signal() }
    }
  }

  /// When a run's workers have ended, stores the remaining settlements and carries out the
  /// remaining requests.
  func flushDeferred() async {
    await settleAll(isLast: true)
    guard storage.retryingStore != nil else { return }
    // The finisher may be waiting for the store. It is cancelled after this.
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
  /// - Returns: Whether to leave them to the finisher, because the store is temporarily unavailable
  ///   and this Swift task can't wait.
  @discardableResult
  private func apply(
    _ settlements: some RandomAccessCollection<Settlement> & Sendable,
    isLast: Bool = false
  ) async -> Bool {
    var batch = settlements.map(\.change)
    batch += upkeep.prunings(after: settlements)
    let shared = settlements.filter(\.mayMeetOthers).map(\.record.id)
    if !shared.isEmpty { await observers.changes.beginEnds(of: shared) }
    defer { if !shared.isEmpty { observers.changes.endsAreReported(of: shared) } }
    do {
      // Usually no occurrence ends. Then avoid one more asynchronous call.
      let ends = OccurrenceEnd.all(in: settlements)
      let answer =
        try await ends.isEmpty ? storage.send(batch) : occurrences.send(batch, ending: ends)
      let isInDoubt = answer.wasResent || settlements.contains(where: \.isInDoubt)
      let results = try await isInDoubt ? reconciled(answer, of: settlements) : answer.outcomes
      // Usually all were stored. Then avoid making an array.
      if zip(settlements, results).allSatisfy({ $1.isDone }) {
        wereStored(settlements)
      } else {
        wereStored(zip(settlements, results).filter { $1.isDone }.map(\.0))
      }
      let meanings = consequences(of: settlements, results)
      if !meanings.isEmpty { await tell(meanings) }
      for case (let settlement, .superseded(let successor)) in zip(settlements, results) {
        await wasSuperseded(settlement, by: successor)
      }
      if isInDoubt, results != answer.outcomes { await findLostConsequences() }
    } catch {
      // In a run that continues, an attempt that is cut short has a cancelled Swift task.
      let isDeferred = dispatch.machine.withLock { machine in
        machine.requeue(Array(settlements))
        return !isLast && error.isTransientFailure && Task.isCancelled && machine.finisherCanWait
      }
      if isDeferred { return true }
      dispatch.fail(error, to: "store how tasks ended", losing: true)
    }
    return false
  }

  private func wasSuperseded(_ settlement: Settlement, by successor: TaskID) async {
    let isAwaited = observers.superseded(settlement, by: successor)
    follow(settlement)
    // The successor may have ended before its callers were linked to it. If the store fails, the
    // next claim stops the queue.
    if isAwaited { try? await tellWhatIsStored(of: [successor]) }
  }

  /// Returns the consequences of stored changes for other tasks.
  func consequences(
    of settlements: some Collection<Settlement>,
    _ results: [ChangeOutcome]
  ) -> [(settlement: Settlement, meaning: Consequences)] {
    zip(settlements, results).compactMap { settlement, result in
      result.consequences.map { (settlement: settlement, meaning: $0) }
    }
  }

  /// Returns the outcomes, with `done` for each change that is stale because an earlier try stored
  /// it.
  ///
  /// The store stored the change although it threw an error, or the change was sent again.
  private func reconciled(
    _ answer: (outcomes: [ChangeOutcome], wasResent: Bool),
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
      if settlement.change.wasStored(leaving: record, isAlone: isAlone) {
        results[index] = .done
      } else if isAlone, record == nil {
        if let successor = try await holder(ofKeyOf: settlement.record) {
          results[index] = .superseded(by: successor)
        } else {
          observers.outcomes.fail(settlement.record.id, Results.unknown(settlement.record.id))
        }
      }
    }
    return results
  }

  /// Returns the holder of the unique key of a task that no longer exists.
  private func holder(ofKeyOf record: TaskRecord) async throws -> TaskID? {
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
  func requeue(_ tasks: [ClaimedTask], isLast: Bool = false) async {
    guard !tasks.isEmpty else { return }
    let isDeferred = await apply(
      tasks.map {
        Settlement(change: .release($0.lease), record: $0.record, wasBegun: false)
      },
      isLast: isLast
    )
    if isDeferred { dispatch.signals.finisher.signal() }
    let requests = dispatch.machine.withLock { $0.wereReturned(tasks) }
    await carryOut(requests, isLast: isLast)
  }

  /// Reports stored settlements, and looks for tasks that they made available.
  func wereStored(_ settlements: some Collection<Settlement>) {
    observers.tell(settlements)
    for settlement in settlements { follow(settlement) }
  }

  private func follow(_ settlement: Settlement) {
    // Another task with the order key may be first in line now.
    if settlement.record.orderKey != nil { dispatch.lookForWork() }
    switch settlement.change {
    case .retry(_, let date, _, _, _), .reschedule(_, let date, _):
      dispatch.becomesAvailable(at: date)
    case .restart(_, let date, _):
      upkeep.noteUnhandled(settlement.record)
      dispatch.becomesAvailable(at: date)
    case .resume:
      upkeep.noteUnhandled(settlement.record)
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
      dispatch.machine.withLock { $0.registered([name]) }
      dispatch.signals.workers.signal()
    case .succeed, .abandon, .cancel, .remove:
      // The task may have had a successor, which may be available now.
      if settlement.record.uniqueKey != nil { dispatch.lookForWork() }
    case .pause, .insert, .unpark, .extend, .prune, .rebase, .remember, .setValue: break
    }
  }
}

/// Claimed tasks without an attempt.
extension Results {
  /// Releases the claimed tasks that match `isMeant` and have not started.
  ///
  /// The claim in flight may still return matching tasks. The call waits for that claim, and
  /// releases those tasks, too. If cancelled, it doesn't wait.
  func putBackUnbegun(where isMeant: @Sendable (TaskRecord) -> Bool) async {
    await requeue(dispatch.machine.withLock { $0.drainUnstarted(where: isMeant) })
    if let claim = dispatch.machine.withLock({ $0.claims.inFlight }) {
      await waitForEnd(ofClaim: claim)
    }
    await requeue(dispatch.machine.withLock { $0.drainUnstarted(where: isMeant) })
  }

  /// Waits until this claim has ended, or until cancelled.
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
  func tell(
    _ consequences: some Sequence<(settlement: Settlement, meaning: Consequences)>
  ) async {
    var ids: [TaskID] = []
    for (settlement, meaning) in consequences {
      tell(meaning, of: settlement)
      ids += meaning.tasks
      // A task that waited for this one may be available now.
      dispatch.lookForWork()
    }
    // The tasks may have changed again before this report. If the store fails, the next claim stops
    // the queue.
    if !ids.isEmpty { try? await correctOutcomes(of: ids) }
  }

  /// Applies the consequences of a change by another queue on the store.
  ///
  /// The affected tasks may belong to this queue or to others. The other queue posts the events.
  func applyRemoteEffects(_ meaning: Consequences, of change: TaskChange) async {
    for id in meaning.tasks {
      switch change {
      case .abandon, .cancel: observers.outcomes.resolve(id, .cancelled)
      // A restarted task may have ended again by now. Its outcome is corrected below.
      case .restart: break
      case .succeed, .retry, .release, .park, .pause, .resume, .reschedule, .update, .remove,
        .insert, .unpark, .extend, .prune, .rebase, .remember, .suspend, .complete, .setValue:
        break
      }
    }
    dispatch.lookForWork()
    if !meaning.tasks.isEmpty { try? await correctOutcomes(of: meaning.tasks) }
  }

  /// Finds the consequences of changes whose answer was lost: the store had already made them when
  /// they were sent again.
  ///
  /// Waiting tasks may be available now, also in other queues of a group. Tasks that callers wait
  /// for may have been cancelled by a cascade.
  func findLostConsequences() async {
    for queue in ofGroup {
      queue.dispatch.lookForWork()
      // If the store fails, the next claim stops the queue.
      try? await queue.tellWhatIsStored(of: queue.observers.outcomes.awaited)
    }
  }

  /// The results of this queue, and of the others of its group.
  var ofGroup: [Results] { [self] + (storage.group?.otherQueues.map(\.results) ?? []) }

  /// Handles a failed call whose changes may be stored all the same.
  ///
  /// The next claim of each queue reports what was stored. The queues look for work, because a
  /// claim may have skipped the tasks.
  func markUncertain() {
    for queue in ofGroup {
      queue.observers.mayHaveUnreportedOutcomes.store(true, ordering: .releasing)
      queue.upkeep.state.withLock { $0.isInDoubt = true }
      queue.dispatch.lookForWork()
    }
  }

  /// Reports the stored outcomes to waiting callers, after a failed call whose changes may be
  /// stored.
  ///
  /// - Throws: Any error of the store; the next claim tries again.
  func reconcile() async throws {
    upkeep.state.withLock { $0.isInDoubt = false }
    do {
      try await tellWhatIsStored(of: observers.outcomes.awaited)
    } catch {
      upkeep.state.withLock { $0.isInDoubt = true }
      throw error
    }
  }

  private func tell(_ meaning: Consequences, of settlement: Settlement) {
    let cause = settlement.record.id
    if let batch = meaning.batch, let follower = settlement.record.dependencies.follower {
      observers.events.post(.batchProgressed(followedBy: follower, batch))
    }
    for id in meaning.tasks {
      switch settlement.change {
      case .abandon, .cancel: observers.cancelledByDependency(id, because: cause)
      case .restart:
        observers.restartedAlong(id)
        upkeep.state.withLock { $0.notice.lookIsDue() }
      case .succeed, .retry, .release, .park, .pause, .resume, .reschedule, .update, .remove,
        .insert, .unpark, .extend, .prune, .rebase, .remember, .suspend, .complete, .setValue:
        break
      }
    }
  }

  /// Replaces the known outcomes of tasks by the stored ones.
  ///
  /// An outcome that is reported during a look-up may be newer than the found one. Such a task is
  /// looked up again.
  private func correctOutcomes(of ids: [TaskID]) async throws {
    var remaining = ids
    while !remaining.isEmpty {
      var outdated: [TaskID] = []
      for page in remaining.lookUpPages {
        let versions = observers.outcomes.versions(of: page)
        let filter = TaskFilter(ids: Set(page))
        let records = try await store.tasks(matching: filter, after: nil, limit: page.count)
        for record in records where !isCorrected(record, ifStill: versions[record.id]) {
          outdated.append(record.id)
        }
      }
      remaining = outdated
    }
  }

  /// Replaces the known outcome of a task by that of its record, unless a newer one was reported
  /// since the look-up began.
  ///
  /// - Returns: `false` if a newer one was reported.
  private func isCorrected(_ record: TaskRecord, ifStill version: Int?) -> Bool {
    guard let outcome = record.outcome else {
      return observers.outcomes.reopen(record.id, ifStill: version)
    }
    return observers.outcomes.resolve(record.id, outcome, ifStill: version)
  }
}

/// Outcomes of tasks that other processes have ended.
extension Results {
  /// Looks up awaited tasks that another process may have ended, and resumes their waiters.
  func refreshAwaitedOutcomes() async {
    do {
      try await tellWhatIsStored(of: observers.outcomes.awaited)
    } catch {
      dispatch.fail(error, to: "look up tasks")
    }
  }

  /// Reports the stored outcomes of tasks whose ends were not reported to this queue.
  ///
  /// - Throws: Any error of the store.
  func tellWhatIsStored(of ids: [TaskID]) async throws {
    for page in ids.lookUpPages { try await tellWhatIsStored(ofPage: page) }
  }

  private func tellWhatIsStored(ofPage ids: ArraySlice<TaskID>) async throws {
    let filter = TaskFilter(ids: Set(ids))
    let versions = observers.outcomes.versions(of: ids)
    let records = try await store.tasks(matching: filter, after: nil, limit: ids.count)
    // An end that is being stored, or was stored just now, is reported separately, and a success
    // with its value.
    func isReported(_ id: TaskID) -> Bool {
      dispatch.machine.withLock { $0.isUnsettled(id) } || observers.changes.isUnderWay(id)
    }
    for record in records {
      guard let outcome = record.outcome, outcome != .succeeded || !isReported(record.id) else {
        continue
      }
      observers.outcomes.resolve(record.id, outcome, ifStill: versions[record.id])
    }
    let found = Set(records.map(\.id))
    for id in ids where !found.contains(id) && !isReported(id) {
      observers.outcomes.fail(id, Results.unknown(id), ifStill: versions[id])
    }
  }

  static func unknown(_ id: TaskID) -> TaskQueueError {
    TaskQueueError(
      .unknownTask,
      "the task \(id) no longer exists: it has ended, and its outcome was not retained; to retain "
        + "outcomes, set succeededRetention and cancelledRetention in each queue on the store"
    )
  }
}
