import Synchronization

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// Stores how attempts ended, and then reports it.
extension TaskQueue {
  /// Stores how an attempt ended, or adds it to the outbox for the finisher.
  ///
  /// The finisher is the Swift task that runs `finishLoop()`.
  nonisolated func finish(_ settlement: Settlement, _ worker: Int, isAttempt: Bool) async {
    if store.appliesAtOnce {
      await apply(CollectionOfOne(settlement))
      let request = machine.withLock { $0.finished(worker, isAttempt: isAttempt) }
      if let request { await obey([request]) }
    } else if machine.withLock({
      $0.finished(worker, with: settlement, isAttempt: isAttempt)
    }) {
      // The finisher of a cancelled run has ended, and other handlers may take long to end.
      if Task.isCancelled { await settleAll() } else { signals.finisher.signal() }
    }
  }

  nonisolated func finishLoop() async {
    while !Task.isCancelled {
      await settleAll()
      await signals.finisher.wait()
    }
    await settleAll(isLast: true)
    // The end of a run that was cancelled waits for no other caller's requests.
    signals.settlement.resumeAll(with: .success(()))
  }

  /// Stores all settlements in the outbox, and carries out the requests that could not be before.
  ///
  /// - Parameter isLast: whether the run ends, so that nothing else does.
  nonisolated func settleAll(isLast: Bool = false) async {
    let unobeyed = machine.withLock { $0.takeUnobeyed() }
    if !unobeyed.isEmpty { await obey(unobeyed, isLast: isLast) }
    while let settlements = machine.withLock({ $0.takeOutbox() }) {
      let isLeft = await apply(settlements, isLast: isLast)
      let (wakesWorkers, requests) = machine.withLock { $0.settled() }
      if backing.patientStore != nil { signals.settlement.resumeAll(with: .success(())) }
      if wakesWorkers { signals.workers.signalAll() }
      await obey(requests, isLast: isLast)
      if isLeft { return signals.finisher.signal() }
    }
  }

  /// Stores the settlements, and carries out the requests, that are left when the workers of a run
  /// have ended.
  nonisolated func settleRest() async {
    await settleAll(isLast: true)
    guard backing.patientStore != nil else { return }
    // The finisher may be waiting for the store, and is cancelled after this.
    func isObeying() -> Bool {
      !Task.isCancelled && machine.withLock { $0.failure == nil && !$0.obeying.isEmpty }
    }
    while machine.withLock({ $0.failure == nil && !$0.outbox.isEmpty }) || isObeying() {
      await signals.settlement.waitUncancelled {
        isObeying() || machine.withLock { $0.outbox.isStoring } ? nil : ()
      }
      await settleAll(isLast: true)
    }
  }

  /// Stores settlements.
  ///
  /// - Returns: Whether the finisher is to store them, because the store is gone for a while and
  ///   this Swift task can't wait.
  @discardableResult
  private nonisolated func apply(
    _ settlements: some RandomAccessCollection<Settlement> & Sendable,
    isLast: Bool = false
  ) async -> Bool {
    var batch = settlements.map(\.change)
    batch += prunings(after: settlements)
    let shared = settlements.filter(\.mayMeetOthers).map(\.record.id)
    if !shared.isEmpty { await observers.changes.beginEnds(of: shared) }
    defer { if !shared.isEmpty { observers.changes.endsAreTold(of: shared) } }
    do {
      // The call is asynchronous, so the usual way avoids it.
      let ends = OccurrenceEnd.all(in: settlements)
      let answer = try await ends.isEmpty ? send(batch) : send(batch, ending: ends)
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
      let isLeft = machine.withLock { machine in
        machine.putBack(Array(settlements))
        return !isLast && error.isTransientFailure && Task.isCancelled && machine.finisherCanWait
      }
      if isLeft { return true }
      fail(error, to: "keep how tasks ended", losing: true)
    }
    return false
  }

  private nonisolated func wasSuperseded(_ settlement: Settlement, by successor: TaskID) async {
    let isAwaited = observers.superseded(settlement, by: successor)
    follow(settlement)
    // It may have ended before its callers were linked to it. A store that fails stops the queue at
    // the next claim.
    if isAwaited { try? await tellWhatIsStored(of: [successor]) }
  }

  /// Returns what changes that were stored have meant for other tasks.
  nonisolated func consequences(
    of settlements: some Collection<Settlement>,
    _ results: [ChangeOutcome]
  ) -> [(settlement: Settlement, meaning: Consequences)] {
    zip(settlements, results).compactMap { settlement, result in
      result.consequences.map { (settlement: settlement, meaning: $0) }
    }
  }

  /// Returns what to prune now that these tasks have ended.
  nonisolated func prunings(after settlements: some Collection<Settlement>) -> [TaskChange] {
    // Usually no ended task is retained. Then don't take the lock.
    guard settlements.contains(where: \.isKeptEnd) else { return [] }
    return upkeep.withLock { $0.pruning.changes(after: settlements, now: now) }
  }

  /// Returns the outcomes, with `done` for each change that is stale because it was stored before.
  ///
  /// The store has stored it although the store failed, or it was sent again.
  private nonisolated func withoutDoubt(
    _ answer: (outcomes: [ChangeOutcome], wasResent: Bool),
    of settlements: some Collection<Settlement> & Sendable
  ) async throws -> [ChangeOutcome] {
    // In a shared store, another process may have ended the task. Then `tellOfOthersTasks()` looks
    // up the outcome for waiting callers.
    let isAlone = !leasesMayHaveRunOut
    var results = answer.outcomes
    for (index, settlement) in settlements.enumerated()
    where answer.wasResent || settlement.isInDoubt {
      guard results[index] == .stale else { continue }
      let record = try await record(of: settlement.record.id)
      if settlement.change.wasStored(leaving: record, isAlone: isAlone) {
        results[index] = .done
      } else if isAlone, record == nil {
        if let successor = try await holder(ofKeyOf: settlement.record) {
          results[index] = .superseded(by: successor)
        } else {
          observers.outcomes.fail(settlement.record.id, Self.unknown(settlement.record.id))
        }
      }
    }
    return results
  }

  /// Returns the task that holds the unique key of another one, which is gone.
  private nonisolated func holder(ofKeyOf record: TaskRecord) async throws -> TaskID? {
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
  nonisolated func putBack(_ tasks: [ClaimedTask], isLast: Bool = false) async {
    guard !tasks.isEmpty else { return }
    let isLeft = await apply(
      tasks.map {
        Settlement(change: .release($0.lease), record: $0.record, wasBegun: false)
      },
      isLast: isLast
    )
    if isLeft { signals.finisher.signal() }
    let requests = machine.withLock { $0.wereReturned(tasks) }
    await obey(requests, isLast: isLast)
  }

  /// Tells what has been stored about tasks, and looks for those that can be performed now.
  nonisolated func wereStored(_ settlements: some Collection<Settlement>) {
    observers.tell(settlements)
    for settlement in settlements { follow(settlement) }
  }

  private nonisolated func follow(_ settlement: Settlement) {
    // Another task with the key may be the head now.
    if settlement.record.orderKey != nil { lookForWork() }
    switch settlement.change {
    case .retry(_, let date, _, _, _), .reschedule(_, let date, _): becomesAvailable(at: date)
    case .restart(_, let date, _):
      noteUnhandled(settlement.record)
      becomesAvailable(at: date)
    case .resume:
      noteUnhandled(settlement.record)
      becomesAvailable(at: settlement.record.availableDate)
    case .suspend(_, let date, let names, _):
      // The completion that it awaits may have come before.
      becomesAvailable(at: names.isEmpty ? date : .distantPast)
    case .complete: lookForWork()
    case .release, .update: becomesAvailable(at: settlement.record.availableDate)
    case .park:
      // Another handler may have been registered before the task was parked.
      let name = settlement.record.name
      guard let handler = handlers[name], handler !== settlement.handler else { break }
      machine.withLock { $0.registered([name]) }
      signals.workers.signal()
    case .succeed, .abandon, .cancel, .remove:
      // The task may have had a successor, which may be available now.
      if settlement.record.uniqueKey != nil { lookForWork() }
    case .pause, .insert, .unpark, .extend, .prune, .rebase, .remember, .setValue: break
    }
  }

  /// Makes a worker look for tasks when a task becomes available.
  ///
  /// If the date is not after `past`, this does not read the clock.
  nonisolated func becomesAvailable(at date: Date, after past: Date = .distantPast) {
    if date <= past { return lookForWork() }
    let now = now
    if date <= now { lookForWork() } else { signals.timer.set(date, from: now) }
  }

  /// Makes a worker look for available tasks.
  nonisolated func lookForWork() {
    // A run that is not a pass looks until it is stopped, and need not be notified.
    if signals.isPassing.load(ordering: .sequentiallyConsistent) {
      machine.withLock { $0.workArrived() }
    }
    signals.workers.signal()
  }

  /// Stops the run, because the store has failed.
  ///
  /// A run that is to end anyway does without a store that is gone for a while, unless something is
  /// lost by that.
  nonisolated func fail(_ error: any Error, to operation: String, losing: Bool = false) {
    if !losing {
      // It did not wait for another call while the store is gone.
      if error is CancellationError, Task.isCancelled { return }
      if error.isTransientFailure, Task.isCancelled || machine.withLock({ $0.isStopping }) {
        return
      }
    }
    let error = TaskQueueError(
      .storeFailed,
      "the queue '\(name)' has stopped, because its store (\(store)) could not \(operation): "
        + "\(error). The queue has dropped nothing that was acknowledged. Do what the store's error "
        + "says, and run the queue again when the fault is gone",
      underlying: error
    )
    machine.withLock { $0.fail(error) }
    stopMayHaveCome()
  }

  /// Wakes whatever waits for something that may not come any more.
  nonisolated func stopMayHaveCome() {
    tellPatience()
    signals.stopMayHaveCome()
  }

  /// Tells the code that waits for the store what is about to end.
  nonisolated func tellPatience() {
    guard let patience = backing.patientStore?.patience else { return }
    patience.note {
      machine.withLock {
        StoreRetryPolicy.Stop(
          isStopping: $0.isStopping && $0.mode != nil,
          isShutDown: $0.isShutDown,
          isCutShort: $0.cutsShort
        )
      }
    }
  }
}

/// How a queue has its store apply changes.
extension TaskQueue {
  /// How often a store may refuse what the queue asks again before that counts as a fault of the
  /// store.
  ///
  /// It may do so while another caller changes the same task, key or value.
  static let mostRefusals = 1_000

  /// Has the store apply changes, and checks that there is a result for each of them.
  nonisolated func persist(
    _ changes: [TaskChange],
    _ durability: Durability = .durable
  ) async throws -> [ChangeOutcome] {
    try UnusableAnswer.check(
      try await store.apply(changes, durability: durability),
      to: changes.count
    )
  }

  /// Does what ``persist(_:_:)`` does, and makes no second call after a transient error.
  nonisolated func persistOnce(
    _ changes: [TaskChange],
    _ durability: Durability
  ) async throws -> [ChangeOutcome] {
    let store = backing.patientStore?.base ?? store
    return try UnusableAnswer.check(
      try await store.apply(changes, durability: durability),
      to: changes.count
    )
  }

  /// Does what ``persist(_:_:)`` does for changes that an attempt makes, and waits for a store that
  /// is gone for a while even if the attempt is cancelled.
  ///
  /// What the attempt has done is not to be done again. It does not wait when the run is cancelled,
  /// or cut short.
  nonisolated func persistInAttempt(
    _ changes: [TaskChange],
    _ durability: Durability
  ) async throws -> [ChangeOutcome] {
    do {
      return try await persist(changes, durability)
    } catch {
      guard error.isTransientFailure, Task.isCancelled, let store = backing.patientStore else {
        throw error
      }
      let sending = Task(executorPreference: RealWork.taskExecutor) {
        try await store.send(changes, durability, .attempt).outcomes
      }
      return try UnusableAnswer.check(try await sending.value, to: changes.count)
    }
  }

  /// Does what ``persist(_:_:)`` does, and tells whether the store was sent the changes more than
  /// once.
  nonisolated func send(
    _ changes: [TaskChange]
  ) async throws -> (outcomes: [ChangeOutcome], wasResent: Bool) {
    guard let patientStore = backing.patientStore else {
      return (try await persist(changes), false)
    }
    let (outcomes, wasResent) = try await patientStore.send(changes, .durable)
    return (try UnusableAnswer.check(outcomes, to: changes.count), wasResent)
  }
}

/// The error for a store whose results don't match the changes that it was given.
struct UnusableAnswer: Error, CustomStringConvertible {
  let results: [ChangeOutcome]
  let to: Int

  /// Returns the results if there is one for each change.
  static func check(_ results: [ChangeOutcome], to count: Int) throws -> [ChangeOutcome] {
    guard results.count == count else { throw UnusableAnswer(results: results, to: count) }
    return results
  }

  var description: String {
    "the store has answered \(to) changes with \(results), which is no answer to them; "
      + "whether they were kept is not known"
  }
}

/// Reports what the changes to some tasks have meant for others, which waited for them.
extension TaskQueue {
  /// Reports consequences of changes that were stored.
  nonisolated func tell(
    _ consequences: some Sequence<(settlement: Settlement, meaning: Consequences)>
  ) async {
    var ids: [TaskID] = []
    for (settlement, meaning) in consequences {
      tell(meaning, of: settlement)
      ids += meaning.tasks
      // A task that waited for this one may be available now.
      lookForWork()
    }
    // The tasks may have changed again before this was told. A store that fails stops the queue at
    // the next claim.
    if !ids.isEmpty { try? await correctOutcomes(of: ids) }
  }

  /// Learns what a change of another queue on the store has meant for tasks.
  ///
  /// They may be tasks of this queue, or of others. The other queue posts the events.
  nonisolated func hear(_ meaning: Consequences, of change: TaskChange) async {
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
    lookForWork()
    if !meaning.tasks.isEmpty { try? await correctOutcomes(of: meaning.tasks) }
  }

  /// Learns what changes have meant for other tasks whose answer was lost: the store had made them
  /// already when they were sent again.
  ///
  /// Tasks that waited may be available, in the other queues of a group, too. Callers may wait for
  /// tasks that have ended along.
  nonisolated func findLostConsequences() async {
    for queue in queuesOfGroup {
      queue.lookForWork()
      // A store that fails stops the queue at the next claim.
      try? await queue.tellWhatIsStored(of: queue.observers.outcomes.awaited)
    }
  }

  /// This queue, and the others of its group.
  nonisolated var queuesOfGroup: [TaskQueue] { [self] + (backing.group?.otherQueues ?? []) }

  /// Notes that a caller's changes may be stored, though its call has failed.
  ///
  /// What is stored nevertheless is told with the next claim of each queue. A claim may also have
  /// skipped the tasks.
  nonisolated func noteLostAnswer() {
    for queue in queuesOfGroup {
      queue.observers.mayMissEnds.store(true, ordering: .releasing)
      queue.upkeep.withLock { $0.isInDoubt = true }
      queue.lookForWork()
    }
  }

  /// Tells waiting callers what the store has of their tasks, after a call that has failed.
  ///
  /// - Throws: What the store throws; the next claim looks again.
  nonisolated func endDoubt() async throws {
    upkeep.withLock { $0.isInDoubt = false }
    do {
      try await tellWhatIsStored(of: observers.outcomes.awaited)
    } catch {
      upkeep.withLock { $0.isInDoubt = true }
      throw error
    }
  }

  private nonisolated func tell(_ meaning: Consequences, of settlement: Settlement) {
    let cause = settlement.record.id
    if let batch = meaning.batch, let follower = settlement.record.dependencies.follower {
      observers.events.post(.batchProgressed(followedBy: follower, batch))
    }
    for id in meaning.tasks {
      switch settlement.change {
      case .abandon, .cancel: observers.cancelledAlong(id, because: cause)
      case .restart:
        observers.restartedAlong(id)
        upkeep.withLock { $0.notice.lookIsDue() }
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
  private nonisolated func correctOutcomes(of ids: [TaskID]) async throws {
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
  private nonisolated func isCorrected(_ record: TaskRecord, ifStill version: Int?) -> Bool {
    guard let outcome = record.outcome else {
      return observers.outcomes.reopen(record.id, ifStill: version)
    }
    return observers.outcomes.resolve(record.id, outcome, ifStill: version)
  }
}
