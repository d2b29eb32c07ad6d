import Foundation

@testable import SteadfastQueue

/// What a table should do, written as plainly as possible: one list, searched from end to end.
struct ReferenceTable {
  struct Entry {
    var record: TaskRecord
    var place: Int
    var lease: Lease?
    var holdsKey: Bool
    /// Grows as tasks end.
    var end = 0
  }

  var entries: [Entry] = []
  private var lastPlace = 0
  private var horizon = Date.distantPast

  private func index(_ id: TaskID) -> Int? { entries.firstIndex { $0.record.id == id } }

  private mutating func nextPlace() -> Int {
    lastPlace += 1
    return lastPlace
  }

  mutating func insert(_ record: TaskRecord, onDuplicate policy: UniquePolicy) -> ChangeOutcome {
    var outcome = ChangeOutcome.done
    if let key = record.uniqueKey,
      let twin = entries.firstIndex(where: { $0.holdsKey && $0.record.uniqueKey == key })
    {
      guard policy == .replace else { return .duplicate(of: entries[twin].record.id) }
      if entries[twin].record.state == .running {
        entries[twin].holdsKey = false
      } else {
        let replaced = entries.remove(at: twin).record
        if !replaced.state.isFinished { outcome = .replaced(replaced.id) }
      }
    }
    entries.append(Entry(record: record, place: nextPlace(), holdsKey: record.uniqueKey != nil))
    return outcome
  }

  /// The tasks to claim, in order; the table under test says which leases they get.
  mutating func claimable(_ request: ClaimRequest) -> [TaskID] {
    let hasReady = entries.contains {
      $0.record.state == .waiting && $0.record.availableDate <= horizon
    }
    horizon = hasReady ? max(horizon, request.now) : request.now
    var room = request.names
    return
      entries
      .filter { $0.record.state == .waiting && $0.record.availableDate <= horizon }
      .sorted {
        let (left, right) = ($0.record, $1.record)
        if left.priority != right.priority { return left.priority > right.priority }
        if left.availableDate != right.availableDate {
          return left.availableDate < right.availableDate
        }
        return $0.place < $1.place
      }
      .filter { entry in
        guard let left = room[entry.record.name], left > 0 else { return false }
        room[entry.record.name] = left - 1
        return true
      }
      .prefix(request.limit).map(\.record.id)
  }

  mutating func lease(_ lease: Lease) {
    guard let index = index(lease.id) else { return }
    entries[index].record.state = .running
    entries[index].lease = lease
  }

  mutating func change(
    _ lease: Lease,
    to state: TaskState,
    keeps: Bool = true,
    at date: Date? = nil,
    keepsPlace: Bool = false,
    _ note: (inout TaskRecord) -> Void = { _ in }
  ) -> ChangeOutcome {
    guard let index = index(lease.id), entries[index].lease == lease else { return .stale }
    guard keeps else {
      entries.remove(at: index)
      return .done
    }
    entries[index].lease = nil
    entries[index].record.state = state
    note(&entries[index].record)
    if !keepsPlace { entries[index].place = nextPlace() }
    if state.isFinished {
      entries[index].record.finishedDate = date
      entries[index].end = entries[index].place
    }
    return .done
  }

  /// What somebody does to a task that is not claimed.
  mutating func change(
    _ id: TaskID,
    in states: Set<TaskState>,
    to state: TaskState,
    keeps: Bool = true,
    at date: Date? = nil,
    _ note: (inout TaskRecord) -> Void = { _ in }
  ) -> ChangeOutcome {
    guard let index = index(id), states.contains(entries[index].record.state) else { return .stale }
    guard keeps else {
      entries.remove(at: index)
      return .done
    }
    entries[index].record.state = state
    note(&entries[index].record)
    entries[index].place = nextPlace()
    if state.isFinished {
      entries[index].record.finishedDate = date
      entries[index].end = entries[index].place
    }
    return .done
  }

  mutating func unpark(_ name: String) {
    for index in entries.indices.sorted(by: { entries[$0].place < entries[$1].place })
    where entries[index].record.state == .parked && entries[index].record.name == name {
      entries[index].record.state = .waiting
      entries[index].place = nextPlace()
    }
  }

  /// The clock went back.
  mutating func rebase(to now: Date) {
    horizon = min(horizon, now)
    for index in entries.indices.sorted(by: { entries[$0].place < entries[$1].place })
    where !entries[index].record.state.isFinished {
      var record = entries[index].record
      if let failed = record.failedDate {
        guard failed > now else { continue }
        record.availableDate = (now + record.availableDate.timeIntervalSince(failed)).storable
        record.failedDate = now
      } else {
        guard record.availableDate > now, record.availableDate <= record.createdDate else {
          continue
        }
        record.availableDate = now
      }
      entries[index].record = record
      if record.state == .waiting { entries[index].place = nextPlace() }
    }
  }

  mutating func prune(_ state: TaskState, endedBefore date: Date?, keepingLatest count: Int?) {
    let ended = entries.filter { $0.record.state == state }.sorted { $0.end < $1.end }
    let surplus = count.map { ended.count - $0 } ?? 0
    let leaving = Set(
      ended.enumerated().prefix { place, entry in
        place < surplus || date.map { (entry.record.finishedDate ?? $0) < $0 } ?? false
      }.map(\.element.record.id)
    )
    entries.removeAll { leaving.contains($0.record.id) }
  }
}
