import Synchronization
import SystemFoundation

/// Carries out commands for all tasks that match a filter.
extension Results {
  /// Returns the `Results` of the task's queue; `nil` if that queue is not in this process.
  private func owner(of record: TaskRecord) -> Results? {
    guard let name = otherQueue(of: record) else { return self }
    return queue(named: name)?.results
  }

  /// Carries out a command for all tasks that match a filter and exist now.
  ///
  /// - Returns: The number of these tasks, except those to which the command does not apply.
  func carryOut(_ command: TaskCommand, forAll filter: TaskFilter) async throws -> Int {
    var count = 0
    try await forEachPage(of: filter, after: nil) { page in
      count += try await carryOut(command, forPage: page, matching: filter)
    }
    return count
  }

  /// Carries out a command for some of the tasks that match a filter, and returns their number.
  private func carryOut(
    _ command: TaskCommand,
    forPage page: some Sequence<TaskRecord>,
    matching filter: TaskFilter
  ) async throws -> Int {
    let now = now
    var records: [TaskRecord] = []
    // The tasks in `others` have earlier commands, which must be carried out first. So the tasks in
    // `records` are changed before those.
    var others: [TaskRecord] = []
    var performedElsewhere: [TaskRecord] = []
    for record in page
    where !command.isMet(by: record, now: now) && !command.isPointless(afterCommandOf: record) {
      if owner(of: record)?.hasCommand(for: record.id) == true {
        others.append(record)
      } else if isPerformedElsewhere(record) {
        performedElsewhere.append(record)
      } else {
        records.append(record)
      }
    }
    var count = 0
    for (record, result) in zip(
      performedElsewhere,
      try await storeCommand(command, of: performedElsewhere)
    ) {
      switch result {
      case .stored: count += 1
      case .refused: break
      case .hasChanged: others.append(record)
      }
    }
    let changes = records.map { change(carryingOut: command, of: $0) }
    let results = try await store(changes, for: records)
    for (record, result) in zip(records, results) {
      if case .duplicate = result { continue }
      if result.isDone { count += 1 } else { others.append(record) }
    }
    for record in others
    where try await carryOutInOwningQueue(command, for: record, matching: filter) {
      count += 1
    }
    return count
  }

  /// Returns whether another process performs a task.
  private func isPerformedElsewhere(_ record: TaskRecord) -> Bool {
    guard record.state == .running, store.sharing != nil else { return false }
    guard let owner = owner(of: record) else { return true }
    // A claim in flight may be that of the task.
    return owner.dispatch.machine.withLock { !$0.claims.isInFlight && !$0.isLeased(record.id) }
  }

  private func hasCommand(for id: TaskID) -> Bool {
    dispatch.machine.withLock { $0.hasCommand(for: id) }
  }

  /// Carries out a command for a single task, in the queue to which the task belongs.
  ///
  /// Only that queue knows whether it is performing the task or has an earlier command for the
  /// task.
  ///
  /// - Returns: Whether the task existed and matched the filter, and the command was carried out.
  private func carryOutInOwningQueue(
    _ command: TaskCommand,
    for listed: TaskRecord,
    matching filter: TaskFilter
  ) async throws -> Bool {
    // The listed task has already matched the filter's queue, and a task never changes its queue.
    var filter = filter
    filter.queue = nil
    guard let owner = owner(of: listed), let record = try await owner.storage.record(of: listed.id),
      filter.matches(record)
    else { return false }
    return try await owner.carryOutUnlessKeyInUse(command, for: record.id)
  }

  /// Carries out a command for a task, but returns `false` if another task has its unique key.
  private func carryOutUnlessKeyInUse(
    _ command: TaskCommand,
    for id: TaskID
  ) async throws -> Bool {
    do {
      return try await carryOut(command, for: id)
    } catch let error as TaskQueueError where error.code == .duplicate {
      return false
    }
  }
}

/// Carries out commands for single tasks.
extension Results {
  /// Carries out a command for a task, which may be waiting, claimed or being performed.
  ///
  /// The call waits while an earlier command for the task is being carried out. If `wasPending`,
  /// the caller has taken the command from the pending ones, and the call does not wait.
  ///
  /// - Returns: Whether the task existed, in a state to which the command applies.
  /// - Throws: `CancellationError` if the caller is cancelled while the call waits and the store is
  ///   unavailable; what the store throws.
  func carryOut(
    _ command: TaskCommand,
    for id: TaskID,
    wasPending: Bool = false
  ) async throws -> Bool {
    var fruitlessClaims = 0
    // A store refuses a change to a task while another change to it is being stored.
    for _ in 0..<QueueStore.maxConflictRetries {
      // After a command that is stored with the task, the next one is stored, too: so all processes
      // know which is the last one.
      let known = store.sharing == nil || wasPending ? nil : try await storage.record(of: id)
      if let record = known, record.state == .running, record.command != nil {
        guard let isStored = try await storeCommand(command, of: record) else { continue }
        return isStored
      }
      let (outcome, claims) = dispatch.machine.withLock { machine in
        (
          machine.request(command, of: id, wasPending: wasPending),
          machine.claims.finishedCount
        )
      }
      switch outcome {
      case .interrupt(let worker, let number):
        dispatch.signals.interrupts[worker].signal()
        await waitForInterruption(of: number, by: worker)
        return true
      case .kept:
        return true
      case .refused:
        return false
      case .prefetched:
        await releaseUnstarted { $0.id == id }
        continue
      case .afterAnother:
        try await waitForPendingCommand(of: id)
        continue
      case .insteadOf(let earlier):
        return try await carryOut(command, for: id, insteadOf: earlier)
      case .notLeased: break
      }
      // The claim or the attempt of a running task may have ended since the first look-up.
      let isKnown = known.map { $0.state != .running } ?? false
      guard let record = isKnown ? known : try await storage.record(of: id),
        command.applies(to: record.state)
      else { return false }
      if command.isMet(by: record, now: now) { return true }
      if record.state != .running, command.isPointless(afterCommandOf: record) { return false }
      let change = change(carryingOut: command, of: record)
      let result = try await store([change], for: [record])[0]
      if result.isDone { return true }
      if case .duplicate(let other) = result { throw Self.keyInUseError(of: record, by: other) }
      guard record.state == .running else { continue }
      // The task may be claimed by this queue's claim in flight: the machine records its lease only
      // when that claim returns. If no claim was in flight since `claims` was read, this queue has
      // not claimed the task.
      let isElsewhere =
        claims != nil && claims == dispatch.machine.withLock { $0.claims.finishedCount }
      // In a shared store, another process may have claimed the task. So wait for no more than two
      // of this queue's claims.
      if store.sharing != nil, isElsewhere || fruitlessClaims == 2 {
        guard let isStored = try await storeCommand(command, of: record) else { continue }
        return isStored
      }
      if isElsewhere { break }
      fruitlessClaims += 1
      try await waitForClaim()
    }
    throw performedElsewhereError(id)
  }

  /// What happens to a command for a task that another process performs.
  private enum CommandStorage {
    /// The process that performs the task carries the command out.
    case stored
    /// The command has no effect on a task that is being performed, or after an earlier command.
    case refused
    /// The task has changed since it was looked up.
    case hasChanged
  }

  /// Stores a command with a running task, and cancels the attempt if this queue makes it.
  ///
  /// - Returns: Whether the command has an effect; `nil` if nothing is stored, because the task has
  ///   changed since it was looked up.
  private func storeCommand(_ command: TaskCommand, of record: TaskRecord) async throws -> Bool? {
    switch try await storeCommand(command, of: [record])[0] {
    case .stored:
      interrupt(record.id, by: command.stored)
      return true
    case .refused: return false
    case .hasChanged: return nil
    }
  }

  /// Stores a command with tasks that other processes perform.
  private func storeCommand(
    _ command: TaskCommand,
    of records: [TaskRecord]
  ) async throws -> [CommandStorage] {
    let changes = records.map { record -> TaskChange? in
      guard let stored = command.stored, !command.isPointless(afterCommandOf: record) else {
        return nil
      }
      return .command(record.id, from: record.command, to: stored)
    }
    let batch = changes.compactMap(\.self)
    var results = try await (batch.isEmpty ? [] : storage.persist(batch)).makeIterator()
    return changes.map { change in
      if change == nil { return .refused }
      return results.next()?.isDone == true ? .stored : .hasChanged
    }
  }

  /// Cancels the attempt at a task because of a command that is stored with the task, if this queue
  /// makes the attempt.
  func interrupt(_ id: TaskID, by command: StoredCommand?) {
    guard let command, let worker = dispatch.machine.withLock({ $0.add(command, of: id) }) else {
      return
    }
    dispatch.signals.interrupts[worker].signal()
  }

  private func performedElsewhereError(_ id: TaskID) -> TaskQueueError {
    TaskQueueError(
      .storeFailed,
      "the store (\(store)) reports that the task \(id) is being performed or changed, but not by "
        + "the queue '\(name)'; shut down any other queue that uses the store, or, if the answer to "
        + "a claim was lost, open the store again with a new queue"
    )
  }

  /// Waits until the Swift task of an attempt is cancelled, or the attempt ends by itself.
  ///
  /// The wait also ends if the caller is cancelled.
  private func waitForInterruption(of number: AttemptNumber, by worker: Int) async {
    while !Task.isCancelled,
      dispatch.machine.withLock({ $0.isWaitingForInterruption(number, of: worker) })
    {
      // Cancellation ends the loop.
      try? await dispatch.signals.interruption.wait {
        dispatch.machine.withLock { $0.isWaitingForInterruption(number, of: worker) }
          ? nil : .success(())
      }
    }
  }

  /// Stores changes to tasks that no queue has claimed, and reports the changes that were stored.
  ///
  /// - Parameters:
  ///   - batch: The changes, one for each task.
  ///   - records: The tasks before the changes.
  ///   - others: Changes to schedules, which are stored in the same batch.
  /// - Returns: The outcome of each change in `batch`, and then of the changes in `others`.
  /// - Throws: What the store throws; `CancellationError` if the caller is cancelled while another
  ///   change of the tasks waits for an unavailable store.
  func store(
    _ batch: [TaskChange],
    for records: [TaskRecord],
    alongside others: [TaskChange] = []
  ) async throws -> [ChangeOutcome] {
    let (ids, keys) = (records.map(\.id), Set(records.compactMap(\.uniqueKey)))
    if !keys.isEmpty { try await observers.keyLocks.lock(keys) }
    defer { if !keys.isEmpty { observers.keyLocks.unlock(keys) } }
    try await observers.changes.beginRequestedChanges(of: ids)
    var failure: (any Error)?
    defer {
      observers.changes.markRequestedChangesReported(of: ids)
      if let failure { lookAgain(after: failure) }
    }
    let results: [ChangeOutcome]
    do {
      results = try await storage.persist(batch + others)
    } catch {
      failure = error
      throw error
    }
    var settlements: [Settlement] = []
    var consequences: [(settlement: Settlement, meaning: Consequences)] = []
    for (index, record) in records.enumerated() where results[index].isDone {
      let settlement = Settlement(change: batch[index], record: record)
      await reportAfterEarlierChanges(settlement)
      settlements.append(settlement)
      if let meaning = results[index].consequences { consequences.append((settlement, meaning)) }
    }
    if !consequences.isEmpty { await reportConsequences(consequences) }
    await notifyOwners(of: settlements)
    await prune(after: settlements)
    return results
  }

  private func prune(after settlements: [Settlement]) async {
    let prunings = upkeep.prunings(after: settlements)
    // If this fails, the next run prunes the tasks.
    if !prunings.isEmpty { _ = try? await store.apply(prunings, durability: .relaxed) }
  }

  /// Reports a stored change to a task, but first waits until the result of an attempt that was
  /// stored earlier has been reported.
  func reportAfterEarlierChanges(_ settlement: Settlement) async {
    await observers.changes.waitUncancelled(
      until: .attemptResultIsReported,
      of: settlement.record.id
    )
    observers.events.postEnqueuedEvent(of: settlement.record.id)
    reportStored(CollectionOfOne(settlement))
  }

  /// Notifies other queues of the group about changes to their tasks.
  private func notifyOwners(of settlements: [Settlement]) async {
    guard let group = storage.group else { return }
    let others = Dictionary(grouping: settlements) { otherQueue(of: $0.record) }
    for name in others.keys.compactMap(\.self).sorted() {
      guard let owner = group.members.queue(named: name)?.results, let settlements = others[name]
      else {
        continue
      }
      // A command that removes tasks has removed those that had ended, and cancelled the others.
      for isRemoval in [false, true] {
        let same = settlements.filter { $0.change.isRemoval == isRemoval }
        guard let change = same.first?.change else { continue }
        await owner.applyConsequences(Consequences(tasks: same.map(\.record.id)), of: change)
      }
    }
  }

  private static func keyInUseError(of record: TaskRecord, by other: TaskID) -> TaskQueueError {
    TaskQueueError(
      .duplicate,
      "the task \(record.id) can't be retried: the task \(other) has its unique key "
        + "'\(record.uniqueKey ?? "")'; wait until that task has ended, or cancel it"
    )
  }

  /// Returns the change that carries out a command for a task that no queue has claimed.
  func change(carryingOut command: TaskCommand, of record: TaskRecord) -> TaskChange {
    judge.change(carryingOut: command, of: record, .unclaimed(record.id), now: now)
  }

  /// Waits for the claim in flight, if there is one.
  ///
  /// - Throws: `CancellationError` if the caller is cancelled and the store is unavailable.
  func waitForClaim() async throws {
    guard let claim = dispatch.machine.withLock({ $0.claims.inFlight }) else { return }
    try await dispatch.signals.claimEnd.wait(
      until: { dispatch.machine.withLock { $0.claims.inFlight != claim } },
      orUnavailable: dispatch.signals.availability
    )
  }
}

extension TaskChange {
  fileprivate var isRemoval: Bool { if case .remove = self { true } else { false } }
}

/// Carries out pending commands, after the leases of their tasks have ended.
extension Results {
  /// Carries out commands that arrived while their tasks were being settled or released.
  ///
  /// If the store fails, a command stays pending, and the next run carries it out. If the store is
  /// temporarily unavailable and this Swift task can't wait, the finisher carries the command out.
  /// At the end, this notifies `idleWaiters`, even if there were no commands, because the queue may
  /// be idle.
  ///
  /// - Parameters:
  ///   - requests: The commands, with their tasks.
  ///   - isLast: Whether the run ends, so that there is no finisher any longer.
  func carryOutPending(_ requests: [PendingCommand], isLast: Bool = false) async {
    for request in requests {
      do {
        _ = try await carryOut(request.command, for: request.id, wasPending: true)
        finishCommand(of: request.id)
      } catch let error as TaskQueueError where error.code == .duplicate {
        // The task is not changed, because another task now has its unique key.
        finishCommand(of: request.id)
      } catch {
        // A `CancellationError` means that the caller is cancelled, and would have to wait for
        // another call while the store is unavailable.
        let isUnavailable = error.isTransientFailure || error is CancellationError
        let isLeftToFinisher =
          !isLast && isUnavailable && Task.isCancelled
          && dispatch.machine.withLock { $0.finisherCanWait }
        // Record the error before `finishCommand`, after which the run may end.
        if !isLeftToFinisher {
          let isBlocked =
            error is CancellationError && Task.isCancelled
            && dispatch.signals.availability.isUnavailable
          let error = isBlocked ? BlockedByOtherCall() : error
          dispatch.fail(error, to: "carry out a command for a task", losing: true)
        }
        // A `TaskQueueError` would occur in the next run, too.
        finishCommand(of: request.id, requeuing: error is TaskQueueError ? nil : request.command)
        if isLeftToFinisher { dispatch.signals.finisher.signal() }
      }
    }
    dispatch.signals.idleWaiters.notifyOfStep()
  }

  /// Carries out a command instead of an earlier one, which stays pending if this fails.
  func carryOut(
    _ command: TaskCommand,
    for id: TaskID,
    insteadOf earlier: TaskCommand
  ) async throws -> Bool {
    var isDone = false
    defer {
      finishCommand(of: id, requeuing: isDone ? nil : earlier)
      // A run may have started in the meantime.
      dispatch.signals.finisher.signal()
      dispatch.signals.idleWaiters.notifyOfStep()
    }
    isDone = try await carryOut(command, for: id, wasPending: true)
    return isDone
  }

  /// Waits while a pending command for a task is being carried out.
  ///
  /// A handler may call this: the command is carried out without waiting for a handler.
  ///
  /// - Throws: `CancellationError` if the caller is cancelled and the store is unavailable.
  func waitForPendingCommand(of id: TaskID) async throws {
    try await dispatch.signals.settlement.wait(
      until: { dispatch.machine.withLock { !$0.isCarryingOut(id) } },
      orUnavailable: dispatch.signals.availability
    )
  }

  /// Records that the command for a task is no longer being carried out.
  ///
  /// - Parameters:
  ///   - id: The task.
  ///   - command: The command that becomes pending again; `nil` if none does.
  private func finishCommand(of id: TaskID, requeuing command: TaskCommand? = nil) {
    dispatch.machine.withLock { machine in
      if let command { machine.restoreCommand(command, for: id) }
      machine.endCommand(for: id)
    }
    dispatch.signals.settlement.resumeAll(with: .success(()))
  }
}

/// The error for a cancelled caller that would have to wait for another call.
private struct BlockedByOtherCall: Error, CustomStringConvertible {
  var description: String {
    "the store is unavailable, and another call for the same task waits for the store; run the "
      + "queue again when the store is available"
  }
}

/// Updates tasks that are not being performed.
extension Results {
  /// Updates a task, after a check that it is performed with payloads of the type `Payload`.
  func update<Payload: TaskPayload>(
    _ id: TaskID,
    _ given: TaskUpdate,
    as type: Payload.Type
  ) async throws -> Bool {
    let names = HandlerTable.names(of: type)
    return try await update(id, given) { (record) throws(TaskQueueError) in
      guard !names.contains(record.name) else { return }
      throw TaskQueueError(
        .invalidArgument,
        "the task \(id) has the name '\(record.name)', but the payload is for tasks with the name "
          + "'\(Payload.taskName)'; pass a payload of the task's type"
      )
    }
  }

  /// Updates a task that has not ended, after it has passed a check.
  func update(
    _ id: TaskID,
    _ given: TaskUpdate,
    check: (TaskRecord) throws(TaskQueueError) -> Void
  ) async throws -> Bool {
    try given.check(.storable)
    if let tags = given.tags { try TaskQueueError.check(tags, "tags") }
    var update = given
    if RealWork.encodesPayloads { update.payload = try given.payload?.withoutValue() }
    update.expiryDate = given.expiryDate?.storable
    if configuration.prohibitsBackoff { update.usesBackoff = given.usesBackoff.map { _ in false } }
    var hasWaited = false
    while let record = try await storage.record(of: id), !record.state.isFinished,
      !record.isDisplaced
    {
      try check(record)
      try update.check(against: record)
      if record.state == .running {
        guard !hasWaited else { throw Self.isRunningError(id) }
        // The attempt may have ended, and its result may be about to be stored.
        hasWaited = true
        try await observers.changes.wait(until: .attemptResultIsReported, of: id)
      } else if try await store([.update(id, update)], for: [record])[0].isDone {
        return true
      }
      try Task.checkCancellation()
    }
    return false
  }

  private static func isRunningError(_ id: TaskID) -> TaskQueueError {
    TaskQueueError(
      .isRunning,
      "the task \(id) is being performed; update the task when it waits again, or pause it, and "
        + "update it when its handler has ended"
    )
  }
}

extension TaskUpdate {
  /// Throws if the updated task would expire before it is available.
  fileprivate func check(against record: TaskRecord) throws(TaskQueueError) {
    guard let expiryDate, record.availableDate >= expiryDate else { return }
    throw TaskQueueError(
      .invalidArgument,
      "expiryDate (\(expiryDate)) is not after the task's availableDate (\(record.availableDate)), "
        + "so the task could never be performed; give a later expiryDate"
    )
  }
}

/// Completes tasks' waits, with a value or an error.
extension Results {
  func complete(_ token: TaskToken, with value: some Encodable & Sendable) async throws -> Bool {
    let outcome: [UInt8]
    do {
      outcome = try MemoryCoding.encode(CompletionOutcome.Value(value: value))
    } catch let error as EncodingError {
      throw error.withoutValue
    }
    return try await complete(token, outcome)
  }

  func complete(_ token: TaskToken, failing error: any Error) async throws -> Bool {
    let failure = CompletionOutcome.Failure(error: judge.text(of: error))
    return try await complete(token, try MemoryCoding.encode(failure))
  }

  /// Stores the outcome of the wait to which a token belongs, unless the wait is already completed.
  func complete(_ token: TaskToken, _ outcome: [UInt8]) async throws -> Bool {
    guard outcome.count <= TaskQueueError.maxValueSize else {
      throw TaskQueueError(
        .invalidArgument,
        "the value for the completion of the task \(token.taskID) has \(outcome.count) bytes; give "
          + "at most \(TaskQueueError.maxValueSize)"
      )
    }
    let id = token.taskID
    try await observers.changes.beginCompletion(of: id)
    defer { observers.changes.markRequestedChangesReported(of: [id]) }
    let name = MemoryName.outcome(token)
    let change = TaskChange.complete(id, named: name, value: outcome)
    guard try await storage.persist([change])[0].isDone else { return false }
    observers.events.postEnqueuedEvent(of: id)
    observers.events.post(.completionArrived(id))
    dispatch.lookForWork()
    return true
  }
}

/// Resumes and reschedules tasks.
extension Results {
  /// Resumes a task, or withdraws the pending command to pause it.
  func resume(_ id: TaskID) async throws -> Bool {
    while true {
      let record = try await storage.record(of: id)
      // Another process has stored the command to pause the task.
      let isToBePaused = record?.command == .pause
      if isToBePaused, let record {
        // If the claim has expired since, the next claim would return the command.
        let change: TaskChange =
          record.state == .running
          ? .command(id, from: .pause, to: .release)
          : .reschedule(
            .unclaimed(id),
            availableDate: record.availableDate,
            countedFrom: record.countedFrom
          )
        guard try await storage.persist([change])[0].isDone else { continue }
        interrupt(id, by: .release)
      }
      switch dispatch.machine.withLock({ $0.withdrawPause(of: id) }) {
      case .done where record?.state != .paused: return true
      case .afterAnother:
        try await waitForPendingCommand(of: id)
        continue
      case .done, .notRequested: break
      }
      guard let record, record.state == .paused else { return isToBePaused }
      if try await store([.resume(id)], for: [record])[0].isDone { return true }
    }
  }

  func reschedule(_ id: TaskID, to date: Date) async throws -> Bool {
    try TaskQueueError.check(storable: date, "the date to reschedule a task to")
    return try await carryOut(.reschedule(to: date.storable), for: id)
  }

  func reschedule(matching filter: TaskFilter, to date: Date) async throws -> Int {
    try TaskQueueError.check(storable: date, "the date to reschedule tasks to")
    let filter = filter.narrowed(to: TaskState.unfinished)
    return try await carryOut(.reschedule(to: date.storable), forAll: filter)
  }
}
