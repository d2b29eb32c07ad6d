import Synchronization

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// Carries out requests that concern tasks.
extension TaskQueue {
  /// Carries out a request for a task that is in a handler, on its way, or in the store.
  ///
  /// It waits until earlier requests for the task are carried out.
  ///
  /// - Returns: Whether the task was there, and in a state to which the request applies.
  /// - Throws: `CancellationError` when the caller is cancelled while it waits, and the store is
  ///   gone; what the store throws.
  nonisolated func ask(_ directive: Directive, of id: TaskID) async throws -> Bool {
    try await open()
    return try await askOpened(directive, of: id)
  }

  /// Does what ``ask(_:of:)`` does, when the store is open.
  ///
  /// If `isObeying`, the request was kept until now, and waits for no other one.
  nonisolated func askOpened(
    _ directive: Directive,
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
    obeying directive: Directive? = nil
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
      "the task \(record.id) can't be restarted: the task \(other) has its unique key "
        + "'\(record.uniqueKey ?? "")'; wait until that one has ended, or cancel it"
    )
  }

  /// Returns the change that carries out a request for a task that no queue has claimed.
  nonisolated func change(_ directive: Directive, of record: TaskRecord) -> TaskChange {
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

extension Directive {
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
