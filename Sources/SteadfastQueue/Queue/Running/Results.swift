import Synchronization
import SystemFoundation

/// Stores what becomes of tasks, and then reports it: how attempts ended, and what callers ask.
final class Results: QueuePart {
  let services: QueueServices
  let upkeep: Upkeep
  let occurrences: Occurrences

  init(_ services: QueueServices, _ upkeep: Upkeep, _ occurrences: Occurrences) {
    self.services = services
    self.upkeep = upkeep
    self.occurrences = occurrences
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
      if let request { await obey([request]) }
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
    // The end of a run that was cancelled waits for no other caller's requests.
    dispatch.signals.settlement.resumeAll(with: .success(()))
  }

  /// Stores all settlements in the outbox, and carries out the requests that could not be before.
  ///
  /// - Parameter isLast: whether the run ends, so that nothing else does.
  func settleAll(isLast: Bool = false) async {
    let unobeyed = dispatch.machine.withLock { $0.takeUnobeyed() }
    if !unobeyed.isEmpty { await obey(unobeyed, isLast: isLast) }
    while let settlements = dispatch.machine.withLock({ $0.takeOutbox() }) {
      let isLeft = await apply(settlements, isLast: isLast)
      let (wakesWorkers, requests) = dispatch.machine.withLock { $0.settled() }
      if storage.patientStore != nil { dispatch.signals.settlement.resumeAll(with: .success(())) }
      if wakesWorkers { dispatch.signals.workers.signalAll() }
      await obey(requests, isLast: isLast)
      if isLeft { return dispatch.signals.finisher.signal() }
    }
  }

  /// Stores the settlements, and carries out the requests, that are left when the workers of a run
  /// have ended.
  func settleRest() async {
    await settleAll(isLast: true)
    guard storage.patientStore != nil else { return }
    // The finisher may be waiting for the store, and is cancelled after this.
    func isObeying() -> Bool {
      !Task.isCancelled && dispatch.machine.withLock { $0.failure == nil && !$0.obeying.isEmpty }
    }
    while dispatch.machine.withLock({ $0.failure == nil && !$0.outbox.isEmpty }) || isObeying() {
      await dispatch.signals.settlement.waitUncancelled {
        isObeying() || dispatch.machine.withLock { $0.outbox.isStoring } ? nil : ()
      }
      await settleAll(isLast: true)
    }
  }

  /// Stores settlements.
  ///
  /// - Returns: Whether the finisher is to store them, because the store is gone for a while and
  ///   this Swift task can't wait.
  @discardableResult
  private func apply(
    _ settlements: some RandomAccessCollection<Settlement> & Sendable,
    isLast: Bool = false
  ) async -> Bool {
    var batch = settlements.map(\.change)
    batch += upkeep.prunings(after: settlements)
    let shared = settlements.filter(\.mayMeetOthers).map(\.record.id)
    if !shared.isEmpty { await observers.changes.beginEnds(of: shared) }
    defer { if !shared.isEmpty { observers.changes.endsAreTold(of: shared) } }
    do {
      // The call is asynchronous, so the usual way avoids it.
      let ends = OccurrenceEnd.all(in: settlements)
      let answer =
        try await ends.isEmpty ? storage.send(batch) : occurrences.send(batch, ending: ends)
      let isInDoubt = answer.wasResent || settlements.contains(where: \.isInDoubt)
      let results = try await isInDoubt ? withoutDoubt(answer, of: settlements) : answer.outcomes
      // Usually all are stored. Then no array of them is made.
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
      // An attempt that is cut short has a cancelled Swift task in a run that goes on.
      let isLeft = dispatch.machine.withLock { machine in
        machine.putBack(Array(settlements))
        return !isLast && error.isTransientFailure && Task.isCancelled && machine.finisherCanWait
      }
      if isLeft { return true }
      dispatch.fail(error, to: "keep how tasks ended", losing: true)
    }
    return false
  }

  private func wasSuperseded(_ settlement: Settlement, by successor: TaskID) async {
    let isAwaited = observers.superseded(settlement, by: successor)
    follow(settlement)
    // It may have ended before its callers were linked to it. A store that fails stops the queue at
    // the next claim.
    if isAwaited { try? await tellWhatIsStored(of: [successor]) }
  }

  /// Returns what changes that were stored have meant for other tasks.
  func consequences(
    of settlements: some Collection<Settlement>,
    _ results: [ChangeOutcome]
  ) -> [(settlement: Settlement, meaning: Consequences)] {
    zip(settlements, results).compactMap { settlement, result in
      result.consequences.map { (settlement: settlement, meaning: $0) }
    }
  }

  /// Returns the outcomes, with `done` for each change that is stale because it was stored before.
  ///
  /// The store has stored it although the store failed, or it was sent again.
  private func withoutDoubt(
    _ answer: (outcomes: [ChangeOutcome], wasResent: Bool),
    of settlements: some Collection<Settlement> & Sendable
  ) async throws -> [ChangeOutcome] {
    // In a shared store, another process may have ended the task. Then `tellOfOthersTasks()` looks
    // up the outcome for waiting callers.
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

  /// Returns the task that holds the unique key of another one, which is gone.
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
  func putBack(_ tasks: [ClaimedTask], isLast: Bool = false) async {
    guard !tasks.isEmpty else { return }
    let isLeft = await apply(
      tasks.map {
        Settlement(change: .release($0.lease), record: $0.record, wasBegun: false)
      },
      isLast: isLast
    )
    if isLeft { dispatch.signals.finisher.signal() }
    let requests = dispatch.machine.withLock { $0.wereReturned(tasks) }
    await obey(requests, isLast: isLast)
  }

  /// Tells what has been stored about tasks, and looks for those that can be performed now.
  func wereStored(_ settlements: some Collection<Settlement>) {
    observers.tell(settlements)
    for settlement in settlements { follow(settlement) }
  }

  private func follow(_ settlement: Settlement) {
    // Another task with the key may be the head now.
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
      // The completion that it awaits may have come before.
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

/// Claimed tasks that no attempt has begun.
extension Results {
  /// Puts back the claimed tasks that are meant and have not begun.
  ///
  /// The claim in flight may hand out further ones, because it was asked for them before. This
  /// waits for it and puts those back, too. If cancelled, it doesn't wait.
  func putBackUnbegun(where isMeant: @Sendable (TaskRecord) -> Bool) async {
    await putBack(dispatch.machine.withLock { $0.takeUnbegun(where: isMeant) })
    if let claim = dispatch.machine.withLock({ $0.claims.inFlight }) {
      await waitForEnd(ofClaim: claim)
    }
    await putBack(dispatch.machine.withLock { $0.takeUnbegun(where: isMeant) })
  }

  /// Returns when this claim is not in flight any more, or when cancelled.
  private func waitForEnd(ofClaim claim: Int) async {
    while !Task.isCancelled, dispatch.machine.withLock({ $0.claims.inFlight == claim }) {
      // Cancelled: the loop ends.
      try? await dispatch.signals.claimEnd.wait {
        dispatch.machine.withLock { $0.claims.inFlight == claim } ? nil : .success(())
      }
    }
  }
}

/// Reports what the changes to some tasks have meant for others, which waited for them.
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
    // The tasks may have changed again before this was told. A store that fails stops the queue at
    // the next claim.
    if !ids.isEmpty { try? await correctOutcomes(of: ids) }
  }

  /// Learns what a change of another queue on the store has meant for tasks.
  ///
  /// They may be tasks of this queue, or of others. The other queue posts the events.
  func hear(_ meaning: Consequences, of change: TaskChange) async {
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

  /// Learns what changes have meant for other tasks whose answer was lost: the store had made them
  /// already when they were sent again.
  ///
  /// Tasks that waited may be available, in the other queues of a group, too. Callers may wait for
  /// tasks that have ended along.
  func findLostConsequences() async {
    for queue in ofGroup {
      queue.dispatch.lookForWork()
      // A store that fails stops the queue at the next claim.
      try? await queue.tellWhatIsStored(of: queue.observers.outcomes.awaited)
    }
  }

  /// The results of this queue, and of the others of its group.
  var ofGroup: [Results] { [self] + (storage.group?.otherQueues.map(\.results) ?? []) }

  /// Notes that a caller's changes may be stored, though its call has failed.
  ///
  /// What is stored nevertheless is told with the next claim of each queue. A claim may also have
  /// skipped the tasks.
  func noteLostAnswer() {
    for queue in ofGroup {
      queue.observers.mayMissEnds.store(true, ordering: .releasing)
      queue.upkeep.state.withLock { $0.isInDoubt = true }
      queue.dispatch.lookForWork()
    }
  }

  /// Tells waiting callers what the store has of their tasks, after a call that has failed.
  ///
  /// - Throws: What the store throws; the next claim looks again.
  func endDoubt() async throws {
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
      case .abandon, .cancel: observers.cancelledAlong(id, because: cause)
      case .restart:
        observers.restartedAlong(id)
        upkeep.state.withLock { $0.notice.lookIsDue() }
      case .succeed, .retry, .release, .park, .pause, .resume, .reschedule, .update, .remove,
        .insert, .unpark, .extend, .prune, .rebase, .remember, .suspend, .complete, .setValue:
        break
      }
    }
  }

  /// Makes the known outcomes of tasks those that the store has.
  ///
  /// What is told of a task during a look may be newer than what the look has found. Such a task is
  /// looked at again.
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

  /// Makes the known outcome of a task that of a record, unless another one was told since a look
  /// began, and returns whether none was.
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
  func tellOfOthersTasks() async {
    do {
      try await tellWhatIsStored(of: observers.outcomes.awaited)
    } catch {
      dispatch.fail(error, to: "look tasks up")
    }
  }

  /// Tells waiting callers how tasks ended whose ends were not reported to this queue.
  ///
  /// - Throws: What the store throws.
  func tellWhatIsStored(of ids: [TaskID]) async throws {
    for page in ids.lookUpPages { try await tellWhatIsStored(ofPage: page) }
  }

  private func tellWhatIsStored(ofPage ids: ArraySlice<TaskID>) async throws {
    let filter = TaskFilter(ids: Set(ids))
    let versions = observers.outcomes.versions(of: ids)
    let records = try await store.tasks(matching: filter, after: nil, limit: ids.count)
    // If an end is on its way into the store, or was stored just now, it is reported, and a success
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
      "the task \(id) is not there any more: it has ended, and its outcome was not kept; to learn "
        + "outcomes, set succeededRetention and cancelledRetention in each queue on the store"
    )
  }
}
