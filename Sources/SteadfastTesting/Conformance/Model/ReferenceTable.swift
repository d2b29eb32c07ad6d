package import SteadfastQueue

#if canImport(FoundationEssentials)
package import FoundationEssentials
#else
package import Foundation
#endif

/// A reference for what a store should do, as simple as possible: one list, searched linearly.
package struct ReferenceTable: Sendable {
  package struct Entry: Sendable {
    package var record: TaskRecord
    /// The task's place among tasks of the same priority and date.
    ///
    /// Tasks that were unparked together share a place.
    package var place: Int
    package var lease: Lease?
    /// The date by the store's clock at which the claim ends; `nil` in a store that one queue uses.
    package var leaseEnd: Date?
    /// The date by that clock from which the end was counted.
    package var leaseStart: Date?
    /// The task's place in the order in which tasks ended.
    package var end = 0
    /// The task's place in the order of its key, which a restart does not change.
    package var number: Int
    /// What the task remembers, by the bytes of the names.
    package var memory: [ExactText: [UInt8]] = [:]
  }

  package var entries: [Entry] = []
  /// The store's own clock, which stands still until it is moved.
  package var clock = Date.second(0)
  /// The progress of batches whose followers may come later in the same batch of changes.
  var earlyBatches: [TaskID: BatchProgress] = [:]
  /// The values, by the bytes of their names.
  package var values: [ExactText: [UInt8]] = [:]
  private var lastPlace = 0

  package init() {}

  func index(_ id: TaskID) -> Int? { entries.firstIndex { $0.record.id == id } }

  package func record(of id: TaskID) -> TaskRecord? { index(id).map { entries[$0].record } }

  /// All tasks, in the order of their IDs.
  package var records: [TaskRecord] { entries.map(\.record).sorted { $0.id < $1.id } }

  mutating func nextPlace() -> Int {
    lastPlace += 1
    return lastPlace
  }

  package mutating func insert(
    _ record: TaskRecord,
    onDuplicate policy: UniquePolicy
  ) -> ChangeOutcome {
    if let index = index(record.id) {
      return record.isStored(as: entries[index].record) ? .done : .identityTaken
    }
    var record = record
    record.keyRole = nil
    record.memorySize = 0
    let unmet = unmetDependency(of: record)
    if let key = record.uniqueKey, !record.state.isFinished {
      switch place(for: record, key, policy) {
      case .role(let role):
        if let unmet { return .unmetDependency(unmet) }
        record.keyRole = role
      case .outcome(let outcome): return outcome
      }
    }
    if let unmet { return .unmetDependency(unmet) }
    record = joined(record)
    let place = nextPlace()
    entries.append(Entry(record: record, place: place, number: place))
    return .done
  }

  package mutating func change(
    _ lease: Lease,
    to state: TaskState,
    retains: Bool = true,
    at date: Date? = nil,
    keepsPlace: Bool = false,
    _ note: (inout TaskRecord) -> Void = { _ in }
  ) -> ChangeOutcome {
    guard let index = index(lease.id), entries[index].lease == lease else { return .stale }
    move(index, to: state, retains: retains, at: date, keepsPlace: keepsPlace, note)
    return .done
  }

  /// Changes a task that is not claimed.
  package mutating func change(
    _ id: TaskID,
    in states: Set<TaskState>,
    to state: TaskState,
    retains: Bool = true,
    at date: Date? = nil,
    _ note: (inout TaskRecord) -> Void = { _ in }
  ) -> ChangeOutcome {
    guard let index = index(id), states.contains(entries[index].record.state) else { return .stale }
    move(index, to: state, retains: retains, at: date, keepsPlace: false, note)
    return .done
  }

  private mutating func move(
    _ index: Int,
    to state: TaskState,
    retains: Bool,
    at date: Date?,
    keepsPlace: Bool,
    _ note: (inout TaskRecord) -> Void
  ) {
    guard retains else {
      entries.remove(at: index)
      return
    }
    entries[index].lease = nil
    entries[index].leaseEnd = nil
    entries[index].record.state = state
    note(&entries[index].record)
    if !keepsPlace { entries[index].place = nextPlace() }
    if state.isFinished {
      entries[index].record.keyRole = nil
      entries[index].record.finishedDate = date
      entries[index].end = entries[index].place
    }
  }

  mutating func remove(at index: Int) { entries.remove(at: index) }

  package mutating func unpark(_ name: String, in queue: String = "") {
    let place = nextPlace()
    for index in entries.indices {
      let record = entries[index].record
      guard record.state == .parked, record.name.isExactly(name), record.queue.isExactly(queue)
      else { continue }
      entries[index].record.state = .waiting
      entries[index].place = place
    }
  }

  package mutating func extend(_ lease: Lease, for duration: Duration) -> ChangeOutcome {
    guard let index = index(lease.id), entries[index].lease == lease else { return .stale }
    entries[index].leaseStart = clock
    entries[index].leaseEnd = clock + duration / .seconds(1)
    return .done
  }

  package mutating func prune(
    _ state: TaskState,
    in queue: String = "",
    endedBefore date: Date?,
    keepingLatest count: Int?,
    now: Date
  ) {
    let ended = entries.filter { entry in
      entry.record.state == state && entry.record.queue.isExactly(queue)
        && !entry.record.holdsUpOthers
        && entry.record.dependencies.cause == nil
        && !(entry.record.uniqueUntil.map { $0 > now } ?? false)
    }.sorted { $0.end < $1.end }
    let surplus = count.map { ended.count - $0 } ?? 0
    let leaving = Set(
      ended.enumerated().prefix { place, entry in
        place < surplus || date.map { (entry.record.finishedDate ?? $0) < $0 } ?? false
      }.map(\.element.record.id)
    )
    for id in leaving { removeAlong(with: id) }
    entries.removeAll { leaving.contains($0.record.id) }
  }
}

// MARK: - Claims

extension ReferenceTable {
  /// Returns the tasks to claim, in order; their leases come from the store under test.
  package mutating func claimable(_ request: ClaimRequest, endsClaims: Bool = true) -> [Entry] {
    if endsClaims {
      interrupt { [clock] in $0.leaseEnd.map { $0 <= clock } ?? false }
    }
    var taken: [ExactText: Int] = [:]
    return Array(
      waiting
        .filter {
          $0.record.availableDate <= request.now && $0.record.queue.isExactly(request.queue)
        }
        .sorted { $0.rank < $1.rank }
        .filter { entry in
          guard entry.record.conditions.isSubset(of: request.conditions) else { return false }
          let name = ExactText(entry.record.name)
          taken[name, default: 0] += 1
          return taken[name, default: 0] <= request.room(for: name.text)
        }
        .prefix(max(0, request.limit))
    )
  }

  package mutating func lease(_ lease: Lease, for duration: Duration? = nil) {
    guard let index = index(lease.id) else { return }
    entries[index].record.state = .running
    entries[index].lease = lease
    entries[index].leaseStart = clock
    entries[index].leaseEnd = duration.map { clock + $0 / .seconds(1) }
  }

  /// Ends the claims of these tasks: they wait again, in their places, with one more interruption.
  package mutating func interrupt(where isOver: (Entry) -> Bool = { _ in true }) {
    for index in entries.indices where entries[index].lease != nil && isOver(entries[index]) {
      entries[index].lease = nil
      entries[index].leaseEnd = nil
      entries[index].record.state = .waiting
      entries[index].record.interruptionCount += 1
    }
  }
}

extension ReferenceTable.Entry {
  /// Decides the order of available tasks: the lower rank goes first.
  package struct Rank: Comparable, Sendable {
    package let priority: Int
    package let availableDate: Date
    package let place: Int

    package static func < (left: Rank, right: Rank) -> Bool {
      if left.priority != right.priority { return left.priority > right.priority }
      if left.availableDate != right.availableDate {
        return left.availableDate < right.availableDate
      }
      return left.place < right.place
    }
  }

  package var rank: Rank {
    Rank(
      priority: record.priority.rawValue,
      availableDate: record.availableDate,
      place: place
    )
  }
}

extension ReferenceTable {
  /// Returns the ranks of these tasks, in the order of `ids`; `nil` for tasks that are not there.
  ///
  /// Tasks of the same rank may be claimed in any order.
  package func ranks(of ids: [TaskID]) -> [Entry.Rank?] {
    ids.map { id in index(id).map { entries[$0].rank } }
  }
}
