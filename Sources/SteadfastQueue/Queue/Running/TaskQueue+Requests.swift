import Synchronization

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// How what is asked of tasks is done.
extension TaskQueue {
  /// Asks something of a task, wherever it is: in a handler, on its way, or in the store.
  ///
  /// Whether the task was there, and in a state for that.
  nonisolated func ask(_ directive: Directive, of id: TaskID) async throws -> Bool {
    try await open()
    return try await askOpened(directive, of: id)
  }

  private nonisolated func askOpened(_ directive: Directive, of id: TaskID) async throws -> Bool {
    var claimsInVain = 0
    // A task is in doubt in a store for as long as another change to it is being stored.
    for _ in 0..<Self.mostRefusals {
      let (answer, claims) = machine.withLock { machine in
        (machine.request(directive, of: id), machine.finishedClaimCount)
      }
      switch answer {
      case .interrupt(let worker, let number):
        interrupts[worker].fire()
        await waitForInterruption(of: number, by: worker)
        return true
      case .kept:
        return true
      case .refused:
        return false
      case .notHeld: break
      }
      guard let record = try await record(of: id), directive.applies(to: record.state) else {
        return false
      }
      if directive.isMet(by: record, now: now) { return true }
      if try await store([change(directive, of: record)], for: [record])[0] { return true }
      guard record.state == .running else { continue }
      // Claimed by a claim that was under way, it is held when that has returned.
      if claims != nil, claims == machine.withLock({ $0.finishedClaimCount }) {
        // Another process performs it.
        if store.sharing != nil { return false }
        break
      }
      // On a shared store claims may follow each other without a break, for the tasks of others.
      if store.sharing != nil, claimsInVain == 2 { return false }
      claimsInVain += 1
      await waitForClaim()
    }
    throw TaskQueueError(
      .storeFailed,
      "the store (\(store)) says that the task \(id) is being performed or changed, which the queue "
        + "'\(name)' does not do; it may serve another queue at the same time, or have lost the "
        + "answer to a claim"
    )
  }

  /// How often a store may refuse a change without a reason that the queue knows.
  private static let mostRefusals = 1_000

  /// Returns when an attempt has been cut short, or has ended by itself.
  ///
  /// A handler that asks that of its own attempt finds it cancelled. If it is cancelled while it
  /// waits, it is just that.
  private nonisolated func waitForInterruption(of number: AttemptNumber, by worker: Int) async {
    while !Task.isCancelled,
      machine.withLock({ $0.isWaitingForInterruption(number, of: worker) })
    {
      // Cancelled: the loop ends.
      try? await interruption.wait {
        machine.withLock { $0.isWaitingForInterruption(number, of: worker) } ? nil : .success(())
      }
    }
  }

  /// Does what was asked of tasks while the ends of their attempts were being kept, or nothing; then the
  /// queue may be idle.
  nonisolated func obey(_ requests: [(TaskID, Directive)]) async {
    for (id, directive) in requests {
      do {
        _ = try await askOpened(directive, of: id)
      } catch {
        fail(error, to: "do what was asked of a task")
      }
    }
    if !requests.isEmpty { machine.withLock { $0.obeyed(requests.count) } }
    idleWatch.step()
  }

  /// Has the store keep changes of tasks that nobody has claimed, and tells of those that it did.
  nonisolated func store(_ batch: [TaskChange], for records: [TaskRecord]) async throws -> [Bool] {
    let ids = records.map(\.id)
    await changes.beginChanges(of: ids)
    defer { changes.changesAreTold(of: ids) }
    let results: [Bool]
    do {
      results = try await keep(batch).map { $0 == .done }
    } catch {
      // The tasks may have been passed over meanwhile.
      lookForWork()
      throw error
    }
    var ended: [Settlement] = []
    for (index, record) in records.enumerated() where results[index] {
      let settlement = Settlement(change: batch[index], record: record)
      await changes.waitUntilEndIsTold(of: record.id)
      hub.announce(record.id)
      report(settlement)
      ended.append(settlement)
    }
    let prunings = prunings(after: ended)
    if !prunings.isEmpty { _ = try await store.apply(prunings, durability: .relaxed) }
    return results
  }

  /// What to do to a task that nobody has claimed.
  nonisolated func change(_ directive: Directive, of record: TaskRecord) -> TaskChange {
    judge.change(
      directive,
      of: .unclaimed(record.id),
      hasEnded: record.state.isFinished,
      now: now
    )
  }

  /// Waits for the claim in flight, if there is one.
  nonisolated func waitForClaim() async {
    guard let claim = machine.withLock({ $0.claimInFlight }) else { return }
    while machine.withLock({ $0.claimInFlight == claim }) {
      await claimEnd.waitUncancelled { machine.withLock { $0.claimInFlight == claim } ? nil : () }
    }
  }

  nonisolated func record(of id: TaskID) async throws -> TaskRecord? {
    try await store.tasks(matching: TaskFilter(ids: [id]), after: nil, limit: 1).first
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

  /// Whether the task is to be available now, and is already: then it keeps its place in line.
  func isMet(by record: TaskRecord, now: Date) -> Bool {
    self == .reschedule(to: nil) && record.state != .running && record.availableDate <= now
  }
}
