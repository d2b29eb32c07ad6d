import Synchronization

#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
public import Foundation
#endif

/// Control of single tasks, and of all tasks that match a filter.
extension TaskQueue {
  /// Cancels a task.
  ///
  /// A task that waits is cancelled when the call returns. If the task is being performed, the call
  /// cancels the handler's Swift task and does not wait for the handler. If the handler then
  /// throws, the task is cancelled; if it returns all the same, the task has succeeded. The outcome
  /// of a cancelled task is ``TaskOutcome/cancelled``. A task that another process performs on a
  /// shared store is left alone.
  ///
  /// - Returns: whether the task is cancelled, or will be if its handler throws; `false` if it is
  ///   gone or has ended, another process performs it, or it is to be removed anyway.
  /// - Throws: what the store throws; `CancellationError` if it is cancelled while another call for
  ///   the task waits for a store that is gone.
  @discardableResult
  public nonisolated func cancel(_ id: TaskID) async throws -> Bool {
    try await ask(.cancel, of: id)
  }

  /// Cancels the tasks that match a filter, as ``cancel(_:)`` does, and returns how many.
  ///
  /// The call changes a few hundred tasks at a time, while the queue goes on with its other work.
  /// Tasks that are enqueued after the call has begun are left alone, except for a few at most.
  ///
  /// In a ``TaskQueueGroup``, a filter with a ``TaskFilter/queue`` of `nil` reaches the tasks of
  /// all queues, also those that another queue of the group performs. The other calls with a filter
  /// do the same.
  ///
  /// - Throws: what the store throws; `CancellationError` if it is cancelled while another call for
  ///   these tasks waits for a store that is gone. Some tasks may have been cancelled by then.
  @discardableResult
  public nonisolated func cancel(matching filter: TaskFilter) async throws -> Int {
    try await ask(.cancel, of: filter.narrowed(to: TaskState.unfinished))
  }

  /// Cancels all tasks that have not ended, and returns how many.
  ///
  /// Tasks that are enqueued after the call has begun stay, as for ``cancel(matching:)``.
  ///
  /// - Throws: as ``cancel(matching:)``.
  @discardableResult
  public nonisolated func cancelAll() async throws -> Int {
    try await cancel(matching: .unfinished)
  }

  /// Pauses a task until it is resumed or retried.
  ///
  /// If the task is being performed, the call cancels the handler's Swift task, and the task is
  /// paused if the handler then throws. That counts as no retry. The event ``TaskEvent/paused(_:)``
  /// is posted when the task is paused.
  ///
  /// - Returns: whether the task existed, had not ended, was neither paused nor about to be
  ///   cancelled, and is not performed by another process.
  /// - Throws: what the store throws; `CancellationError` if it is cancelled while another call for
  ///   the task waits for a store that is gone.
  @discardableResult
  public nonisolated func pause(_ id: TaskID) async throws -> Bool { try await ask(.pause, of: id) }

  /// Resumes a paused task: it waits again, with the date and the retries that it had.
  ///
  /// - Returns: whether the task was paused.
  /// - Throws: what the store throws; `CancellationError` if it is cancelled while another call for
  ///   the task waits for a store that is gone.
  @discardableResult
  public nonisolated func resume(_ id: TaskID) async throws -> Bool {
    try await open()
    var withdrawn: PendingCommand?
    do {
      return try await resume(id, withdrawing: &withdrawn)
    } catch {
      if let withdrawn {
        machine.withLock { $0.putBack(withdrawn) }
        // A run may have begun.
        signals.finisher.signal()
      }
      throw error
    }
  }

  /// Resumes a task, and sets the request to pause it that was withdrawn, though the store may have
  /// done it.
  private nonisolated func resume(
    _ id: TaskID,
    withdrawing request: inout PendingCommand?
  ) async throws -> Bool {
    while true {
      switch machine.withLock({ $0.withdrawPause(of: id) }) {
      case .done: return true
      case .inDoubt(let withdrawn): request = withdrawn
      case .afterAnother:
        try await waitUntilObeyed(id)
        continue
      case .notAsked: break
      }
      guard let record = try await record(of: id), record.state == .paused else {
        return request != nil
      }
      if try await store([.resume(id)], for: [record])[0].isDone { return true }
    }
  }

  /// Makes a task wait again as if it were new, available now, whatever state it is in.
  ///
  /// Use it to retry a dead letter, or to start a paused task over. An expiry date that has
  /// passed is dropped; a later one stays. If the task is being performed, the call cancels the
  /// handler's Swift task, and the task starts over if the handler then throws.
  ///
  /// What the task remembers stays, so a dead letter goes on with the step that failed. A task that
  /// has succeeded remembers nothing.
  ///
  /// - Parameters:
  ///   - id: the task.
  ///   - forgetting: whether the task forgets what it remembers, and begins from the beginning.
  /// - Returns: whether the task existed, and is not performed by another process.
  /// - Throws: a ``TaskQueueError`` with the code ``TaskQueueError/Code/duplicate`` if the task has
  ///   ended or expired, and another task has its unique key by now; the same errors as
  ///   ``cancel(_:)``.
  @discardableResult
  public nonisolated func retry(
    _ id: TaskID,
    forgetting: Bool = false
  ) async throws -> Bool {
    try await ask(.restart(forgets: forgetting), of: id)
  }

  /// Retries the tasks that match a filter, as ``retry(_:forgetting:)`` does, and returns how many.
  ///
  /// `retry(matching: .deadLetters)` tries all dead letters once more. A task whose unique key
  /// another task has by now is left alone: it still matches the filter afterwards, and
  /// ``retry(_:forgetting:)`` says which task has its key.
  ///
  /// - Throws: the same errors as ``cancel(matching:)``; some tasks may wait again by then.
  @discardableResult
  public nonisolated func retry(
    matching filter: TaskFilter,
    forgetting: Bool = false
  ) async throws -> Int {
    try await ask(.restart(forgets: forgetting), of: filter)
  }

  /// Sets the date from which a task may be performed.
  ///
  /// The task's retries and its last error stay as they are, and it goes behind the available tasks
  /// of its priority. A date that has passed counts as now.
  ///
  /// A paused or parked task stays so, with the new date. A task that is being performed is left
  /// alone. A task that has expired by the new date is abandoned on that date.
  ///
  /// - Returns: whether the task existed, had not ended, and was not being performed.
  /// - Throws: a ``TaskQueueError`` for a date that is not finite; the same errors as
  ///   ``cancel(_:)``.
  @discardableResult
  public nonisolated func reschedule(_ id: TaskID, to date: Date) async throws -> Bool {
    try TaskQueueError.check(storable: date, "the date to reschedule a task to")
    return try await ask(.reschedule(to: date.storable), of: id)
  }

  /// Reschedules the tasks that match a filter, as ``reschedule(_:to:)`` does, and returns how many
  /// got another date.
  ///
  /// - Throws: as ``reschedule(_:to:)``; some tasks may have been rescheduled by then.
  @discardableResult
  public nonisolated func reschedule(
    matching filter: TaskFilter,
    to date: Date
  ) async throws -> Int {
    try TaskQueueError.check(storable: date, "the date to reschedule tasks to")
    let filter = filter.narrowed(to: TaskState.unfinished)
    return try await ask(.reschedule(to: date.storable), of: filter)
  }

  /// Makes a task available now, without the rest of its delay.
  ///
  /// Otherwise it does what ``reschedule(_:to:)`` does. A task that is available already is left
  /// alone.
  ///
  /// - Returns: whether the task existed, had not ended, was not being performed, and was not
  ///   available already.
  /// - Throws: the same errors as ``cancel(_:)``.
  @discardableResult
  public nonisolated func performNow(_ id: TaskID) async throws -> Bool {
    try await ask(.reschedule(to: nil), of: id)
  }

  /// Makes the tasks that match a filter available now, and returns how many were not.
  ///
  /// When the network is back, `performNow(matching: .retrying)` makes the tasks available at once
  /// that wait for a retry, or for the end of a snooze. Their number of retries stays. Tasks whose
  /// date was chosen are left alone: a filter without ``TaskFilter/isPostponed`` would make them
  /// available now, too.
  ///
  /// - Throws: the same errors as ``cancel(matching:)``; some tasks may be available by then.
  @discardableResult
  public nonisolated func performNow(matching filter: TaskFilter) async throws -> Int {
    try await ask(.reschedule(to: nil), of: filter.narrowed(to: TaskState.unfinished))
  }

  /// Removes a task without a trace, even a retained one.
  ///
  /// If the task is being performed, the call cancels the handler's Swift task, and the task is
  /// removed if the handler then throws.
  ///
  /// - Returns: whether the task existed, and is not performed by another process.
  /// - Throws: what the store throws; `CancellationError` if it is cancelled while another call for
  ///   the task waits for a store that is gone.
  @discardableResult
  public nonisolated func remove(_ id: TaskID) async throws -> Bool {
    try await ask(.remove, of: id)
  }

  /// Removes the tasks that match a filter, as ``remove(_:)`` does, and returns how many.
  ///
  /// - Throws: the same errors as ``cancel(matching:)``; some tasks may have been removed by then.
  @discardableResult
  public nonisolated func remove(matching filter: TaskFilter) async throws -> Int {
    try await ask(.remove, of: filter)
  }
}

/// Changes of enqueued tasks.
extension TaskQueue {
  /// Replaces the payload of a task that is not being performed, and changes what else is given.
  ///
  /// ```swift
  /// let corrected = PostComment(text: "corrected")
  /// try await queue.update(task.id, with: corrected, priority: .high)
  /// ```
  ///
  /// The task may wait for its first attempt or for a retry, be paused, or be parked. What is not
  /// given stays as it is. So do the task's date, its retries, its failures and its unique key. A
  /// task that is parked because its payload can't be decoded is tried with the new payload when it
  /// is retried, or when the queue next runs.
  ///
  /// A task that gets another priority takes its place among the tasks of that priority by its
  /// available date, behind those of the same date. With the same priority, it keeps its place. For
  /// another date, see ``reschedule(_:to:)``.
  ///
  /// - Parameters:
  ///   - id: the task.
  ///   - payload: the new payload; of the type that the task was enqueued with, or of a type that
  ///     has the task's name among its former names.
  ///   - priority: its rank among the available tasks.
  ///   - maxRetries: how often it may be retried; the retries that it has had already count.
  ///   - usesBackoff: whether a retry waits for the queue's backoff.
  ///   - timeLimit: how long one attempt may take.
  ///   - expiryDate: the date from which no attempt begins any more.
  ///   - tags: its labels, in place of those that it has; an empty set removes them.
  /// - Returns: whether the task existed, had not ended, and had not lost its unique key to a later
  ///   task because it had expired.
  /// - Throws: a ``TaskQueueError`` with the code ``TaskQueueError/Code/isRunning`` if the task is
  ///   being performed, or ``TaskQueueError/Code/invalidArgument`` for a payload of another type or
  ///   an argument that makes no sense; what the store throws; `CancellationError` if it is
  ///   cancelled while another call for the task waits for a store that is gone. After an error,
  ///   nothing is changed.
  @discardableResult
  public nonisolated func update<Payload: TaskPayload>(
    _ id: TaskID,
    with payload: Payload,
    priority: Priority? = nil,
    maxRetries: RetryLimit? = nil,
    usesBackoff: Bool? = nil,
    timeLimit: Duration? = nil,
    expiryDate: Date? = nil,
    tags: Set<String>? = nil
  ) async throws -> Bool {
    let update = TaskUpdate(
      payload: StoredPayload(payload),
      priority: priority,
      maxRetries: maxRetries,
      usesBackoff: usesBackoff,
      timeLimit: timeLimit,
      expiryDate: expiryDate,
      tags: tags
    )
    let names = Self.names(of: Payload.self)
    return try await self.update(id, update) { (record) throws(TaskQueueError) in
      guard !names.contains(record.name) else { return }
      throw TaskQueueError(
        .invalidArgument,
        "the task \(id) is a '\(record.name)', and the payload is of '\(Payload.taskName)'; give one "
          + "of the task's type"
      )
    }
  }

  /// Changes what is given about a task that is not being performed, and leaves its payload.
  ///
  /// - Parameters:
  ///   - id: the task.
  ///   - priority: its rank among the available tasks.
  ///   - maxRetries: how often it may be retried; the retries that it has had already count.
  ///   - usesBackoff: whether a retry waits for the queue's backoff.
  ///   - timeLimit: how long one attempt may take.
  ///   - expiryDate: the date from which no attempt begins any more.
  ///   - tags: its labels, in place of those that it has; an empty set removes them.
  /// - Returns: as ``update(_:with:priority:maxRetries:usesBackoff:timeLimit:expiryDate:tags:)``.
  /// - Throws: as ``update(_:with:priority:maxRetries:usesBackoff:timeLimit:expiryDate:tags:)``.
  @discardableResult
  public nonisolated func update(
    _ id: TaskID,
    priority: Priority? = nil,
    maxRetries: RetryLimit? = nil,
    usesBackoff: Bool? = nil,
    timeLimit: Duration? = nil,
    expiryDate: Date? = nil,
    tags: Set<String>? = nil
  ) async throws -> Bool {
    let update = TaskUpdate(
      priority: priority,
      maxRetries: maxRetries,
      usesBackoff: usesBackoff,
      timeLimit: timeLimit,
      expiryDate: expiryDate,
      tags: tags
    )
    return try await self.update(id, update) { _ in }
  }

  private nonisolated func update(
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
    try await open()
    var hasWaited = false
    while let record = try await record(of: id), !record.state.isFinished, !record.isDisplaced {
      try check(record)
      try update.check(against: record)
      if record.state == .running {
        guard !hasWaited else { throw Self.running(id) }
        // Its attempt may have ended, and its end may be on its way into the store.
        hasWaited = true
        try await observers.changes.wait(until: .endIsTold, of: id)
      } else if try await store([.update(id, update)], for: [record])[0].isDone {
        return true
      }
      try Task.checkCancellation()
    }
    return false
  }

  private static func running(_ id: TaskID) -> TaskQueueError {
    TaskQueueError(
      .isRunning,
      "the task \(id) is being performed; change it when it waits again, or pause it, and change it "
        + "when its handler has ended"
    )
  }
}

extension TaskUpdate {
  /// Throws if the task could never be performed afterwards.
  fileprivate func check(against record: TaskRecord) throws(TaskQueueError) {
    guard let expiryDate, record.availableDate >= expiryDate else { return }
    throw TaskQueueError(
      .invalidArgument,
      "expiryDate (\(expiryDate)) is not after the task's availableDate (\(record.availableDate)): it "
        + "could never be performed"
    )
  }
}

/// Requests for all tasks that match a filter.
extension TaskQueue {
  /// Asks something of all tasks that match a filter and exist now.
  ///
  /// - Returns: The number of tasks that it was done to.
  nonisolated func ask(_ directive: TaskCommand, of filter: TaskFilter) async throws -> Int {
    try await open()
    var count = 0
    try await forEachPage(of: filter, after: nil) { page in
      count += try await ask(directive, of: page, matching: filter)
    }
    return count
  }

  /// Calls the body with the tasks that match a filter and exist now, a page at a time.
  ///
  /// Callers that add tasks all the time can't make it go on for ever.
  nonisolated func forEachPage(
    of filter: TaskFilter,
    after id: TaskID?,
    _ body: ([TaskRecord]) async throws -> Void
  ) async throws {
    let own = generators.latestID(before: now)
    try await store.forEachPage(of: filter, after: id, tasksUpTo: own, body)
  }

  /// Asks something of a page of tasks, and returns the number of tasks that it was done to.
  private nonisolated func ask(
    _ directive: TaskCommand,
    of page: some Sequence<TaskRecord>,
    matching filter: TaskFilter
  ) async throws -> Int {
    let now = now
    var records: [TaskRecord] = []
    // What was asked of these before comes first. The others don't wait for it.
    var others: [TaskRecord] = []
    for record in page where !directive.isMet(by: record, now: now) {
      if owner(of: record)?.hasRequest(for: record.id) == true {
        others.append(record)
      } else {
        records.append(record)
      }
    }
    var count = 0
    let results = try await store(records.map { change(directive, of: $0) }, for: records)
    for (record, result) in zip(records, results) {
      if case .duplicate = result { continue }
      if result.isDone { count += 1 } else { others.append(record) }
    }
    for record in others where try await askAgain(directive, of: record, matching: filter) {
      count += 1
    }
    return count
  }

  private nonisolated func hasRequest(for id: TaskID) -> Bool {
    machine.withLock { $0.hasRequest(for: id) }
  }

  /// Asks something of a task that has changed since it was listed, is being performed, or of which
  /// something else was asked before.
  ///
  /// If the task is of another queue of the group, that queue asks it: it may perform the task.
  ///
  /// - Returns: Whether the task was there, matched the filter, and it was done to it.
  private nonisolated func askAgain(
    _ directive: TaskCommand,
    of listed: TaskRecord,
    matching filter: TaskFilter
  ) async throws -> Bool {
    // The store knows which queue the filter means, and a task stays in its queue.
    var filter = filter
    filter.queue = nil
    guard let owner = owner(of: listed), let record = try await owner.record(of: listed.id),
      filter.matches(record)
    else { return false }
    return try await owner.askUnlessKeyIsHeld(directive, of: record.id)
  }

  /// Does what `ask(_:of:)` does, but leaves a task alone whose unique key another one has.
  private nonisolated func askUnlessKeyIsHeld(
    _ directive: TaskCommand,
    of id: TaskID
  ) async throws -> Bool {
    do {
      return try await askOpened(directive, of: id)
    } catch let error as TaskQueueError where error.code == .duplicate {
      return false
    }
  }
}

/// Carries out requests that concern tasks.
extension TaskQueue {
  /// Carries out a request for a task that is in a handler, on its way, or in the store.
  ///
  /// It waits until earlier requests for the task are carried out.
  ///
  /// - Returns: Whether the task was there, and in a state to which the request applies.
  /// - Throws: `CancellationError` when the caller is cancelled while it waits, and the store is
  ///   gone; what the store throws.
  nonisolated func ask(_ directive: TaskCommand, of id: TaskID) async throws -> Bool {
    try await open()
    return try await askOpened(directive, of: id)
  }

  /// Does what ``ask(_:of:)`` does, when the store is open.
  ///
  /// If `isObeying`, the request was kept until now, and waits for no other one.
  nonisolated func askOpened(
    _ directive: TaskCommand,
    of id: TaskID,
    isObeying: Bool = false
  ) async throws -> Bool {
    var claimsInVain = 0
    // A store refuses a change to a task while another change to it is being stored.
    for _ in 0..<Self.mostRefusals {
      let (answer, claims) = machine.withLock { machine in
        (
          machine.request(directive, of: id, isObeying: isObeying),
          machine.claims.finishedCount
        )
      }
      switch answer {
      case .interrupt(let worker, let number):
        signals.interrupts[worker].signal()
        await waitForInterruption(of: number, by: worker)
        return true
      case .kept:
        return true
      case .refused:
        return false
      case .claimedAhead:
        await putBackUnbegun { $0.id == id }
        continue
      case .afterAnother:
        try await waitUntilObeyed(id)
        continue
      case .insteadOf(let earlier):
        return try await ask(directive, of: id, insteadOf: earlier)
      case .notHeld: break
      }
      guard let record = try await record(of: id), directive.applies(to: record.state) else {
        return false
      }
      if directive.isMet(by: record, now: now) { return true }
      let change = change(directive, of: record)
      let obeyed = isObeying ? directive : nil
      let result = try await store([change], for: [record], obeying: obeyed)[0]
      if result.isDone { return true }
      if case .duplicate(let other) = result { throw Self.keyIsHeld(record, by: other) }
      guard record.state == .running else { continue }
      // If a claim under way has taken the task, the queue holds it when that claim has returned.
      if claims != nil, claims == machine.withLock({ $0.claims.finishedCount }) {
        // Another process performs it.
        if store.sharing != nil { return false }
        break
      }
      // In a shared store, claims may follow each other without a break, for other queues' tasks.
      // So wait for two claims at most.
      if store.sharing != nil, claimsInVain == 2 { return false }
      claimsInVain += 1
      try await waitForClaim()
    }
    throw isHeldElsewhere(id)
  }

  private nonisolated func isHeldElsewhere(_ id: TaskID) -> TaskQueueError {
    TaskQueueError(
      .storeFailed,
      "the store (\(store)) says that the task \(id) is being performed or changed, which the queue "
        + "'\(name)' does not do; it may serve another queue at the same time, or have lost the "
        + "answer to a claim"
    )
  }

  /// Waits until an attempt is cut short, or ends by itself.
  ///
  /// If a handler makes such a request for its own attempt, it is cancelled when this returns. If
  /// the caller is cancelled while it waits, the wait ends.
  private nonisolated func waitForInterruption(of number: AttemptNumber, by worker: Int) async {
    while !Task.isCancelled,
      machine.withLock({ $0.isWaitingForInterruption(number, of: worker) })
    {
      // Cancellation ends the loop.
      try? await signals.interruption.wait {
        machine.withLock { $0.isWaitingForInterruption(number, of: worker) } ? nil : .success(())
      }
    }
  }

  /// Stores changes to tasks that no queue has claimed, and reports the ones that were stored.
  ///
  /// Other changes, of schedules, may be stored along with them. Without such, occurrences that end
  /// are followed by the next ones.
  ///
  /// With a `directive`, the only change carries out a request that was kept until now. If the
  /// store fails, the machine notes the doubt.
  ///
  /// - Returns: The outcome of each change.
  nonisolated func store(
    _ batch: [TaskChange],
    for records: [TaskRecord],
    along others: [TaskChange] = [],
    obeying directive: TaskCommand? = nil
  ) async throws -> [ChangeOutcome] {
    let (ids, keys) = (records.map(\.id), turnKeys(of: records))
    if !keys.isEmpty { try await observers.keyTurns.begin(keys) }
    defer { if !keys.isEmpty { observers.keyTurns.end(keys) } }
    try await observers.changes.beginChanges(of: ids)
    var isFailed = false
    defer {
      observers.changes.changesAreTold(of: ids)
      if isFailed { noteLostAnswer() }
    }
    let (results, isAnswerLost): ([ChangeOutcome], Bool)
    do {
      let ends = occurrenceEnds(in: batch, of: records)
      let answer = try await others.isEmpty ? send(batch, ending: ends) : send(batch + others)
      let outcomes = try await withoutDoubt(answer, batch)
      (results, isAnswerLost) = (outcomes, outcomes != answer.outcomes)
    } catch {
      if let directive { noteDoubt(directive, Settlement(change: batch[0], record: records[0])) }
      isFailed = true
      throw error
    }
    var settlements: [Settlement] = []
    var consequences: [(settlement: Settlement, meaning: Consequences)] = []
    for (index, record) in records.enumerated() where results[index].isDone {
      let settlement = Settlement(change: batch[index], record: record)
      await wasStored(settlement)
      settlements.append(settlement)
      if let meaning = results[index].consequences { consequences.append((settlement, meaning)) }
    }
    if !consequences.isEmpty { await tell(consequences) }
    if isAnswerLost { await findLostConsequences() }
    await tellOwners(of: settlements)
    await prune(after: settlements)
    return results
  }

  private nonisolated func prune(after settlements: [Settlement]) async {
    let prunings = prunings(after: settlements)
    // The tasks are changed, whatever becomes of this: a run prunes, too.
    if !prunings.isEmpty { _ = try? await store.apply(prunings, durability: .relaxed) }
  }

  /// Tells what has been stored about a task, after what was stored before.
  nonisolated func wasStored(_ settlement: Settlement) async {
    await observers.changes.waitUncancelled(until: .endIsTold, of: settlement.record.id)
    observers.events.announce(settlement.record.id)
    wereStored(CollectionOfOne(settlement))
  }

  private nonisolated func occurrenceEnds(
    in batch: [TaskChange],
    of records: [TaskRecord]
  ) -> [OccurrenceEnd] {
    batch.enumerated().compactMap { index, change in
      OccurrenceEnd(index, change, ofQueue: otherQueue(of: records[index]))
    }
  }

  /// Lets other queues of the group learn what was done to their tasks.
  private nonisolated func tellOwners(of settlements: [Settlement]) async {
    guard let group = backing.group else { return }
    let others = Dictionary(grouping: settlements) { otherQueue(of: $0.record) }
    for name in others.keys.compactMap(\.self).sorted() {
      guard let owner = group.members.queue(named: name), let settlements = others[name] else {
        continue
      }
      // One request removes tasks that have ended, and cancels the others.
      for isRemoval in [false, true] {
        let same = settlements.filter { $0.change.isRemoval == isRemoval }
        guard let change = same.first?.change else { continue }
        await owner.hear(Consequences(tasks: same.map(\.record.id)), of: change)
      }
    }
  }

  /// Returns the outcomes, with `done` for each change that is stale because it was sent before.
  private nonisolated func withoutDoubt(
    _ answer: (outcomes: [ChangeOutcome], wasResent: Bool),
    _ batch: [TaskChange]
  ) async throws -> [ChangeOutcome] {
    guard answer.wasResent else { return answer.outcomes }
    var results = answer.outcomes
    for (index, change) in batch.enumerated() where results[index] == .stale {
      guard let id = change.unclaimedID else { continue }
      let record = try await record(of: id)
      guard change.wasStored(leaving: record, isAlone: store.sharing == nil) else { continue }
      results[index] = .done
    }
    return results
  }

  private static func keyIsHeld(_ record: TaskRecord, by other: TaskID) -> TaskQueueError {
    TaskQueueError(
      .duplicate,
      "the task \(record.id) can't be retried: the task \(other) has its unique key "
        + "'\(record.uniqueKey ?? "")'; wait until that one has ended, or cancel it"
    )
  }

  /// Returns the change that carries out a request for a task that no queue has claimed.
  nonisolated func change(_ directive: TaskCommand, of record: TaskRecord) -> TaskChange {
    judge.change(directive, of: record, .unclaimed(record.id), now: now)
  }

  /// Waits for the claim in flight, if there is one.
  ///
  /// - Throws: `CancellationError` when the caller is cancelled, and the store is gone.
  nonisolated func waitForClaim() async throws {
    guard let claim = machine.withLock({ $0.claims.inFlight }) else { return }
    try await signals.claimEnd.wait(
      until: { machine.withLock { $0.claims.inFlight != claim } },
      orGone: signals.absence
    )
  }

  nonisolated func record(of id: TaskID) async throws -> TaskRecord? {
    try await store.tasks(matching: TaskFilter(ids: [id]), after: nil, limit: 1).first
  }
}

extension TaskChange {
  /// The task that the change concerns, if no queue has claimed it.
  fileprivate var unclaimedID: TaskID? {
    switch self {
    case .cancel(.unclaimed(let id), _, _), .pause(.unclaimed(let id)), .resume(let id),
      .restart(.unclaimed(let id), _, _), .reschedule(.unclaimed(let id), _, _), .remove(let id):
      id
    default: nil
    }
  }
}

extension TaskCommand {
  fileprivate func applies(to state: TaskState) -> Bool {
    switch self {
    case .cancel, .reschedule: !state.isFinished
    case .pause: !state.isFinished && state != .paused
    case .restart, .remove: true
    case .release: state == .paused
    }
  }

  /// Returns whether the request is to make a task available now, and the task already is.
  ///
  /// Such a task keeps its place in line.
  func isMet(by record: TaskRecord, now: Date) -> Bool {
    self == .reschedule(to: nil) && record.state != .running && record.availableDate <= now
  }
}

extension TaskChange {
  fileprivate var isRemoval: Bool { if case .remove = self { true } else { false } }
}

/// Carries out requests that were kept until the queue has let go of their tasks.
extension TaskQueue {
  /// Carries out requests that came while their tasks were being settled or released.
  ///
  /// A request stays if the store fails, and the next run carries it out. The finisher does so if
  /// the store is gone for a while and this Swift task can't wait. At the end this signals
  /// `idleWatch`, even if there were no requests, because the queue may be idle.
  ///
  /// - Parameters:
  ///   - requests: the requests.
  ///   - isLast: whether the run ends, so that no finisher carries them out.
  nonisolated func obey(_ requests: [PendingCommand], isLast: Bool = false) async {
    for request in requests {
      do {
        _ = try await carryOut(request.directive, of: request.id)
        obeyed(request.id)
      } catch let error as TaskQueueError where error.code == .duplicate {
        // The task stays as it is: another one stands for its key.
        obeyed(request.id)
      } catch {
        // A cancelled caller waits for no other call while the store is gone.
        let isGone = error.isTransientFailure || error is CancellationError
        let isLeft =
          !isLast && isGone && Task.isCancelled && machine.withLock { $0.finisherCanWait }
        // First, so that the run does not end without the error.
        if !isLeft {
          let isWait = error is CancellationError && Task.isCancelled && signals.absence.isGone
          let error = isWait ? OtherCallWaits() : error
          fail(error, to: "do what was asked of a task", losing: true)
        }
        // After an error of the queue itself, the next run could not do it, either.
        obeyed(request.id, puttingBack: error is TaskQueueError ? nil : request.directive)
        if isLeft { signals.finisher.signal() }
      }
    }
    signals.idleWatch.step()
  }

  /// Carries out a request in place of an earlier one, which no run does now.
  ///
  /// If it is not carried out, the earlier one stays.
  nonisolated func ask(
    _ directive: TaskCommand,
    of id: TaskID,
    insteadOf earlier: TaskCommand
  ) async throws -> Bool {
    var isDone = false
    defer {
      obeyed(id, puttingBack: isDone ? nil : earlier)
      // A run may have begun.
      signals.finisher.signal()
      signals.idleWatch.step()
    }
    isDone = try await carryOut(directive, of: id)
    return isDone
  }

  /// Waits until no request for a task is being carried out that was kept.
  ///
  /// What is carried out waits for the store, and for no handler. So a handler can wait for it.
  ///
  /// - Throws: `CancellationError` when the caller is cancelled, and the store is gone.
  nonisolated func waitUntilObeyed(_ id: TaskID) async throws {
    try await signals.settlement.wait(
      until: { machine.withLock { !$0.isObeying(id) } },
      orGone: signals.absence
    )
  }

  /// Ends the carrying out of a request, or keeps one for the next run.
  private nonisolated func obeyed(_ id: TaskID, puttingBack directive: TaskCommand? = nil) {
    machine.withLock { machine in
      if let directive { machine.putBack(directive, of: id) }
      machine.obeyed(id)
    }
    signals.settlement.resumeAll(with: .success(()))
  }

  /// Carries out a request that is not to be carried out by anything else now.
  ///
  /// - Returns: Whether the task was there, and in a state to which the request applies.
  private nonisolated func carryOut(_ directive: TaskCommand, of id: TaskID) async throws -> Bool {
    if try await wasCarriedOut(directive, of: id) { return true }
    return try await askOpened(directive, of: id, isObeying: true)
  }

  /// Tells what was asked of a task before, if the store has done it though it failed.
  ///
  /// - Returns: Whether that was the same as is asked now.
  private nonisolated func wasCarriedOut(
    _ directive: TaskCommand,
    of id: TaskID
  ) async throws -> Bool {
    guard let doubt = machine.withLock({ $0.doubt(about: id) }) else { return false }
    try await observers.changes.beginChanges(of: [id])
    defer { observers.changes.changesAreTold(of: [id]) }
    let record = try await record(of: id)
    machine.withLock { $0.setDoubt(nil, about: id) }
    let (change, isAlone) = (doubt.settlement.change, store.sharing == nil)
    // If the task was like that before, a look can't tell.
    guard change.wasStored(leaving: record, isAlone: isAlone),
      !change.wasStored(leaving: doubt.settlement.record, isAlone: isAlone)
    else { return false }
    await wasStored(doubt.settlement)
    await findLostConsequences()
    return doubt.directive == directive
  }

  /// Notes that the store has failed to store what was asked of a task, and may have stored it.
  nonisolated func noteDoubt(_ directive: TaskCommand, _ settlement: Settlement) {
    let doubt = PendingCommand.Doubt(directive: directive, settlement: settlement)
    machine.withLock { $0.setDoubt(doubt, about: settlement.record.id) }
  }
}

/// The error of a request that waits for another call, which waits for the store.
private struct OtherCallWaits: Error, CustomStringConvertible {
  var description: String { "it is gone, and another call for the task waits for it" }
}
