#if PostgreSQL
import SteadfastDatabases
import SteadfastQueue

/// Batches of several callers, which one transaction makes.
///
/// Most changes are plain: a new task that has no key and waits for no other, and the end of an
/// attempt at such a task. One statement makes all plain changes of a kind. The others are made one
/// by one.
struct BatchGroup {
  let batches: [[PreparedChange]]
  /// The tasks that an earlier try has found to be concerned.
  var others: Set<TaskID> = []
  /// The tasks that an earlier try has found not to be plain.
  var notPlain: Set<TaskID> = []
  /// Whether the changes are looked at before they are made; if not, all must be plain.
  var isCareful = false

  /// A change of a batch.
  struct Place {
    let batch: Int
    let offset: Int
  }

  /// Changes that one statement may make, and the parts of batches that are left.
  struct Parts {
    var insertions: [(place: Place, record: TaskRecord, payload: [UInt8])] = []
    var removals: [(place: Place, lease: Lease)] = []
    var releases: [(place: Place, lease: Lease)] = []
    var extensions: [(place: Place, lease: Lease, duration: Duration)] = []
    /// The offsets of each batch's changes that are made one by one.
    var offsets: [[Int]]
  }

  init(_ batches: [[PreparedChange]]) { self.batches = batches }

  /// Sorts the changes.
  ///
  /// Changes of which each names a lease concern different tasks, so their order does not matter.
  func parts() -> Parts {
    var parts = Parts(offsets: batches.map { _ in [] })
    for (number, batch) in batches.enumerated() {
      let isApart = batch.allSatisfy(isPlainInsertion) || batch.allSatisfy(\.namesLease)
      for (offset, change) in batch.enumerated() {
        let place = Place(batch: number, offset: offset)
        if !isApart || !parts.add(change, at: place, unless: notPlain) {
          parts.offsets[number].append(offset)
        }
      }
    }
    return parts
  }

  private func isPlainInsertion(_ change: PreparedChange) -> Bool {
    guard case .insert(let record, _) = change.change else { return false }
    return record.isPlain && !notPlain.contains(record.id)
  }
}

extension BatchGroup {
  /// Whether a change names a lease, so that only the database knows whether its task is plain.
  var namesLeases: Bool { batches.contains { $0.contains(where: \.namesLease) } }

  /// Whether the changes may make a task available, or set a value, that other queues wait for.
  var concernsOtherQueues: Bool {
    batches.contains { batch in
      batch.contains { change in
        switch change.change {
        case .succeed(let lease, _, retains: false): notPlain.contains(lease.id)
        case .extend: false
        default: true
        }
      }
    }
  }
}

extension BatchGroup.Parts {
  /// Adds a change if one statement may make it.
  fileprivate mutating func add(
    _ change: PreparedChange,
    at place: BatchGroup.Place,
    unless notPlain: Set<TaskID>
  ) -> Bool {
    switch change.change {
    case .insert(let record, _): insertions.append((place, record, change.payload))
    case .succeed(let lease, _, retains: false) where !notPlain.contains(lease.id):
      removals.append((place, lease))
    case .release(let lease) where !notPlain.contains(lease.id): releases.append((place, lease))
    case .extend(let lease, let duration) where !notPlain.contains(lease.id):
      extensions.append((place, lease, duration))
    default: return false
    }
    return true
  }

  /// Whether no change is made by itself.
  var haveAll: Bool { offsets.allSatisfy(\.isEmpty) }

  /// The tasks of the changes that name a lease.
  var leased: [TaskID] {
    removals.map(\.lease.id) + releases.map(\.lease.id) + extensions.map(\.lease.id)
  }

  /// Leaves these tasks' changes to be made one by one.
  mutating func leave(_ ids: Set<TaskID>) {
    let left =
      removals.filter { ids.contains($0.lease.id) }.map(\.place)
      + releases.filter { ids.contains($0.lease.id) }.map(\.place)
    // The end of a claim may be moved, whatever the task is.
    removals.removeAll { ids.contains($0.lease.id) }
    releases.removeAll { ids.contains($0.lease.id) }
    for place in left { offsets[place.batch].append(place.offset) }
    for batch in Set(left.map(\.batch)) { offsets[batch].sort() }
  }
}

extension TaskRecord {
  /// Whether the task is new, has no key, and waits for no other.
  fileprivate var isPlain: Bool {
    state == .waiting && uniqueKey == nil && orderKey == nil && retryCount == 0
      && interruptionCount == 0 && lastError == nil && !isPostponed && uniqueUntil == nil
      && latestDate == nil && !holdsOrder && dependencies == TaskDependencies()
  }
}

extension PreparedChange {
  fileprivate var namesLease: Bool {
    switch change {
    case .succeed, .retry, .abandon, .release, .park, .suspend, .extend, .cancel(.claimed, _, _),
      .pause(.claimed), .restart(.claimed, _, _), .reschedule(.claimed, _, _):
      true
    default: false
    }
  }
}
#endif
