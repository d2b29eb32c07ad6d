#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// A change that was checked and holds what it needs until it is committed or rolled back.
struct StagedChange: Sendable {
  let change: TaskChange
  let outcome: ChangeOutcome
  /// The task that the change concerns; `nil` if it concerns none or several.
  fileprivate let slot: Int?
  /// The task that an insertion takes the unique key from.
  fileprivate var twin: TaskTable.Node?

  /// Whether the change is to be kept, and then committed.
  var isKept: Bool {
    switch outcome {
    case .done, .replaced: true
    case .duplicate, .stale: false
    }
  }
}

extension TaskTable {
  mutating func apply(_ batch: [TaskChange]) -> [ChangeOutcome] {
    batch.map { change in
      let staged = stage(change)
      commit(staged)
      return staged.outcome
    }
  }

  mutating func stage(_ change: TaskChange) -> StagedChange {
    switch change {
    case .insert(let record, let replacesTwin):
      return stageInsertion(of: record, replacesTwin: replacesTwin, change)
    case .succeed(let lease, _, _), .retry(let lease, _, _, _), .abandon(let lease, _, _),
      .release(let lease), .park(let lease, _):
      guard let slot = slots[lease.id], !entries[slot].isReserved,
        entries[slot].place == .leased(token: lease.token)
      else { return StagedChange(change: change, outcome: .stale, slot: nil) }
      entries[slot].isReserved = true
      return StagedChange(change: change, outcome: .done, slot: slot)
    case .unpark, .prune, .rebase:
      return StagedChange(change: change, outcome: .done, slot: nil)
    }
  }

  private mutating func stageInsertion(
    of record: TaskRecord,
    replacesTwin: Bool,
    _ change: TaskChange
  ) -> StagedChange {
    var outcome = ChangeOutcome.done
    var twin: Node?
    if let key = record.uniqueKey, let slot = keyHolders[key] {
      let entry = entries[slot]
      guard replacesTwin else {
        return StagedChange(change: change, outcome: .duplicate(of: entry.record.id), slot: nil)
      }
      // What becomes of a twin that is being changed is not known yet, and must not be decided
      // otherwise when the file is read again: whoever asked may ask once more.
      guard !entry.isReserved, entry.place != .staged else {
        return StagedChange(change: change, outcome: .duplicate(of: entry.record.id), slot: nil)
      }
      twin = Node(slot: slot, position: entry.position)
      if entry.place.isAtRest {
        entries[slot].isReserved = true
        outcome = .replaced(entry.record.id)
      }
    }
    guard slots[record.id] == nil else {
      preconditionFailure("a store was given a second task with the identity \(record.id)")
    }
    let slot = entries.insert(
      Entry(record: record, place: .staged, lane: lane(of: record.name), position: 0)
    )
    slots[record.id] = slot
    if let key = record.uniqueKey { keyHolders[key] = slot }
    return StagedChange(change: change, outcome: outcome, slot: slot, twin: twin)
  }

  mutating func commit(_ staged: StagedChange) {
    guard staged.isKept else { return }
    if let slot = staged.slot { entries[slot].isReserved = false }
    switch (staged.change, staged.slot) {
    case (.insert, let slot?):
      if let twin = staged.twin, isAt(twin) {
        if case .replaced = staged.outcome {
          remove(twin.slot)
        } else {
          entries[twin.slot].hasLostKey = true
        }
      }
      admit(slot)
    case (.succeed(_, let date, let keeps), let slot?):
      keeps ? end(slot, as: .succeeded, at: date) : remove(slot)
    case (.abandon(_, let failure, let keeps), let slot?):
      note(failure, on: slot)
      keeps ? end(slot, as: .abandoned, at: failure.date) : remove(slot)
    case (.retry(_, let date, let retryCount, let failure), let slot?):
      entries[slot].record.availableDate = date
      entries[slot].record.retryCount = retryCount
      entries[slot].record.interruptionCount = 0
      note(failure, on: slot)
      setState(.waiting, of: slot)
      lineUpAnew(slot)
    case (.release, let slot?):
      setState(.waiting, of: slot)
      lineUp(slot)
    case (.park(_, let failure), let slot?):
      note(failure, on: slot)
      setState(.parked, of: slot)
      lineUpAnew(slot)
    case (.unpark(let name), _):
      unpark(name)
    case (.prune(let state, let date, let count), _):
      prune(state, endedBefore: date, keepingLatest: count)
    case (.rebase(let date), _):
      rebase(to: date)
    case (.insert, nil), (.succeed, nil), (.abandon, nil), (.retry, nil), (.release, nil),
      (.park, nil):
      preconditionFailure("a change was staged without the task that it concerns")
    }
  }

  /// Takes back what staging reserved.
  ///
  /// Changes are rolled back in the reverse order of staging.
  mutating func rollBack(_ staged: StagedChange) {
    guard staged.isKept, let slot = staged.slot else { return }
    guard case .insert(let record, _) = staged.change else {
      entries[slot].isReserved = false
      return
    }
    remove(slot)
    guard let twin = staged.twin, isAt(twin), let key = record.uniqueKey else { return }
    keyHolders[key] = twin.slot
    guard case .replaced = staged.outcome else { return }
    entries[twin.slot].isReserved = false
    // A claim may have passed over the reserved task and dropped its place in line.
    if entries[twin.slot].place != .finished { lineUp(twin.slot) }
  }

  private func isAt(_ node: Node) -> Bool {
    entries.element(at: node.slot)?.position == node.position
  }

  private mutating func note(_ failure: TaskFailure?, on slot: Int) {
    guard let failure else { return }
    entries[slot].record.lastError = failure.reason
    entries[slot].record.failedDate = failure.date
  }

  private mutating func unpark(_ name: String) {
    guard let lane = laneIndices[name] else { return }
    // Those that a compaction has written come back in any order.
    let parked = lanes[lane].parked.sorted { $0.position < $1.position }
    lanes[lane].parked = []
    for node in parked where isCurrent(node, .parked) {
      setState(.waiting, of: node.slot)
      lineUpAnew(node.slot)
    }
  }

  private mutating func prune(
    _ state: TaskState,
    endedBefore date: Date?,
    keepingLatest count: Int?
  ) {
    guard var line = ended[state] else { return }
    let expired = line.removeExpired(endedBefore: date, keepingLatest: count) { node in
      guard let entry = entries.element(at: node.slot) else { return false }
      return entry.position == node.position && entry.place == .finished
    }
    ended[state] = line
    for node in expired { remove(node.slot) }
  }
}

extension TaskTable.Place {
  /// Whether a task here is neither being kept nor being performed.
  fileprivate var isAtRest: Bool {
    switch self {
    case .waiting, .ready, .parked, .finished: true
    case .staged, .leased: false
    }
  }
}
