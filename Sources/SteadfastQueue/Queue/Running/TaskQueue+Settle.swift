import Synchronization

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// What attempts end in: stored, and then told.
extension TaskQueue {
  /// Hands on what ended an attempt.
  nonisolated func finish(
    _ settlement: Settlement,
    _ worker: Int,
    isAttempt: Bool
  ) async {
    if store.appliesAtOnce {
      await apply([settlement])
      let directive = machine.withLock { $0.finished(worker, isAttempt: isAttempt) }
      if let directive { await obey([(settlement.record.id, directive)]) }
    } else if machine.withLock({
      $0.finished(worker, with: settlement, isAttempt: isAttempt)
    }) {
      // The finisher of a cancelled run has gone, and other handlers may take long to end.
      if Task.isCancelled { await settleAll() } else { settle.fire() }
    }
  }

  nonisolated func finishLoop() async {
    while !Task.isCancelled {
      await settleAll()
      await settle.wait()
    }
    await settleAll()
  }

  nonisolated func settleAll() async {
    while let settlements = machine.withLock({ $0.takeOutbox() }) {
      await apply(settlements)
      let (wakesWorkers, requests) = machine.withLock { $0.settled() }
      if wakesWorkers { wake.fireAll() }
      await obey(requests)
    }
  }

  private nonisolated func apply(_ settlements: [Settlement]) async {
    var batch = settlements.map(\.change)
    batch += prunings(after: settlements)
    let remaining = settlements.filter(\.leavesTask).map(\.record.id)
    if !remaining.isEmpty { changes.beginEnds(of: remaining) }
    defer { if !remaining.isEmpty { changes.endsAreTold(of: remaining) } }
    do {
      let results = try await keep(batch)
      report(settlements, try await withoutDoubt(results, of: settlements))
    } catch {
      machine.withLock { $0.putBack(settlements) }
      fail(error, to: "keep how tasks ended")
    }
  }

  /// What to prune now that these tasks have ended.
  nonisolated func prunings(after settlements: [Settlement]) -> [TaskChange] {
    // Mostly none is kept: then the lock is not worth taking.
    guard settlements.contains(where: \.isKeptEnd) else { return [] }
    return pruning.withLock { $0.changes(after: settlements, now: now) }
  }

  /// The results, with `done` for each end of a task that the store had kept when it failed.
  private nonisolated func withoutDoubt(
    _ results: [ChangeOutcome],
    of settlements: [Settlement]
  ) async throws -> [ChangeOutcome] {
    // Of tasks that others may have ended, whoever waits is told by looking them up.
    guard store.sharing == nil else { return results }
    var results = results
    for (index, settlement) in settlements.enumerated()
    where settlement.isInDoubt && results[index] == .stale {
      guard let outcome = settlement.outcome else { continue }
      let record = try await record(of: settlement.record.id)
      if record == nil || record?.outcome == outcome { results[index] = .done }
    }
    return results
  }

  /// Puts back what was claimed and not begun.
  nonisolated func putBack(_ tasks: [ClaimedTask]) async {
    guard !tasks.isEmpty else { return }
    await apply(
      tasks.map {
        Settlement(change: .release($0.lease), record: $0.record, wasBegun: false)
      }
    )
    let requests = machine.withLock { $0.wereReturned(tasks) }
    await obey(requests)
  }

  private nonisolated func report(_ settlements: [Settlement], _ results: [ChangeOutcome]) {
    statisticsBoard.withLock { board in
      for index in settlements.indices where results[index] == .done {
        board.stored(settlements[index].change)
      }
    }
    for index in settlements.indices where results[index] == .done { report(settlements[index]) }
  }

  /// Tells what has been stored of a task.
  nonisolated func report(_ settlement: Settlement) {
    let id = settlement.record.id
    if let outcome = settlement.outcome {
      outcomes.resolve(id, outcome, value: settlement.value)
    }
    if hub.isObserved, let event = settlement.event { hub.post(event) }
    switch settlement.change {
    case .retry(_, let date, _, let failure):
      if failure != nil { outcomes.report(0, of: id) }
      becomesAvailable(at: date)
    case .restart(_, let date):
      outcomes.reopen(id)
      becomesAvailable(at: date)
    case .reschedule(_, let date): becomesAvailable(at: date)
    case .release, .resume, .update: becomesAvailable(at: settlement.record.availableDate)
    case .park:
      // Another handler may have been registered before the task was put aside.
      let name = settlement.record.name
      guard let handler = handlers[name], handler !== settlement.handler else { break }
      machine.withLock { $0.registered([name]) }
      wake.fire()
    case .succeed, .abandon, .cancel, .pause, .remove, .insert, .unpark, .extend,
      .prune, .rebase:
      break
    }
  }

  /// Sees to it that a worker looks when a task becomes available.
  ///
  /// A date that has passed already spares the look at the clock.
  nonisolated func becomesAvailable(at date: Date, after past: Date = .distantPast) {
    if date <= past || date <= now { lookForWork() } else { alarm.set(date) }
  }

  /// Has a worker look whether something is available.
  nonisolated func lookForWork() {
    // Other runs look until they are stopped, and need not be told.
    if isPassing.load(ordering: .sequentiallyConsistent) {
      machine.withLock { $0.workArrived() }
    }
    wake.fire()
  }

  nonisolated func fail(_ error: any Error, to operation: String) {
    let error = TaskQueueError(
      .storeFailed,
      "the queue '\(name)' has stopped, because its store (\(store)) could not \(operation): "
        + "\(error). Nothing acknowledged is lost; run the queue again when the fault is gone, or make a "
        + "new one with a new store if this one says so",
      underlying: error
    )
    machine.withLock { $0.fail(error) }
    lookForStop()
  }
}

extension TaskQueue {
  /// Has the store keep changes, and makes sure that each has an answer.
  nonisolated func keep(
    _ changes: [TaskChange],
    _ durability: Durability = .durable
  ) async throws -> [ChangeOutcome] {
    let results = try await store.apply(changes, durability: durability)
    guard results.count == changes.count else {
      throw UnusableAnswer(results: results, to: changes.count)
    }
    return results
  }
}

/// A store has answered changes with what is no answer to them.
struct UnusableAnswer: Error, CustomStringConvertible {
  let results: [ChangeOutcome]
  let to: Int

  var description: String {
    "the store has answered \(to) changes with \(results), which is no answer to them; "
      + "whether they were kept is not known"
  }
}
