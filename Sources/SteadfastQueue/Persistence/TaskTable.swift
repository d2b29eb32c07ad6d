#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// All tasks of one store: by identity, ready by rank, waiting by date, and by unique key.
///
/// A value without clock, lock or I/O, the one index behind every embedded store. A change is
/// staged (checked, and what it needs reserved), then committed once it is kept, or rolled back if
/// it could not be. A task that a staged change has reserved is not claimed, and a second change
/// to it is stale. A store in memory does both steps at once.
struct TaskTable: Sendable {
  struct Entry: Sendable {
    var record: TaskRecord
    var place: Place
    /// Whether a staged change holds the task.
    var isReserved = false
    /// Whether a later task has taken its unique key while it was being performed.
    var hasLostKey = false
    let lane: Int
    /// Changes when the task goes to the end of a line: a node that disagrees is stale.
    var position: UInt64
  }

  enum Place: Sendable, Equatable {
    case staged, waiting, ready, leased(token: UInt64), parked, finished
  }

  /// The ready tasks of one name, so that a name without a handler costs the others nothing.
  struct Lane: Sendable {
    let name: String
    var ready = OrderedLine<ReadyNode>()
    var parked: [Node] = []
  }

  /// A task at the position that it had when the node was made.
  struct Node: Sendable, Equatable {
    let slot: Int
    let position: UInt64
  }

  var entries = Slab<Entry>()
  var slots: [TaskID: Int] = [:]
  var lanes: [Lane] = []
  var laneIndices: [String: Int] = [:]
  var waiting = OrderedLine<DateNode>()
  var waitingCount = 0
  var keyHolders: [String: Int] = [:]
  var ended: [TaskState: EndedLine] = [:]
  private var stateCounts: [TaskState: Int] = [:]
  private var lastNumber: UInt64 = 0
  /// The latest date of a claim: what was available then is ready.
  var horizon = Date.distantPast

  /// A number that was never given before, for positions and lease tokens.
  mutating func nextNumber() -> UInt64 {
    lastNumber += 1
    return lastNumber
  }
}

// MARK: - Look-ups

extension TaskTable {
  func record(of id: TaskID) -> TaskRecord? {
    guard let slot = slots[id], entries[slot].place != .staged else { return nil }
    return entries[slot].record
  }

  /// In the order of identities.
  ///
  /// O(k) for k identities in the filter, else O(n log n).
  func tasks(matching filter: TaskFilter, after id: TaskID?, limit: Int) -> [TaskRecord] {
    var found = candidates(filter).filter { record in
      (id.map { record.id > $0 } ?? true) && filter.matches(record)
    }
    found.sort { $0.id < $1.id }
    return Array(found.prefix(max(0, limit)))
  }

  /// O(1) for a filter of states alone, else O(n).
  func count(matching filter: TaskFilter) -> Int {
    if let states = filter.states, filter == TaskFilter(states: states) {
      return states.reduce(0) { $0 + (stateCounts[$1] ?? 0) }
    }
    return candidates(filter).reduce(0) { $0 + (filter.matches($1) ? 1 : 0) }
  }

  private func candidates(_ filter: TaskFilter) -> [TaskRecord] {
    if let ids = filter.ids { return ids.compactMap(record(of:)) }
    if let keys = filter.uniqueKeys {
      return keys.compactMap { key in keyHolders[key].flatMap { record(of: entries[$0].record.id) }
      }
    }
    return slots.values.compactMap { slot in
      entries[slot].place == .staged ? nil : entries[slot].record
    }
  }
}

// MARK: - Moves

extension TaskTable {
  mutating func lane(of name: String) -> Int {
    if let lane = laneIndices[name] { return lane }
    lanes.append(Lane(name: name))
    laneIndices[name] = lanes.count - 1
    return lanes.count - 1
  }

  /// Moves a task to the end of the line where its state and date put it.
  mutating func lineUpAnew(_ slot: Int) {
    entries[slot].position = nextNumber()
    lineUp(slot)
  }

  /// Lines a task up where its state and date put it, in its present position.
  mutating func lineUp(_ slot: Int) {
    let record = entries[slot].record
    let node = Node(slot: slot, position: entries[slot].position)
    switch record.state {
    case .waiting where record.availableDate <= horizon:
      setPlace(.ready, of: slot)
      lanes[entries[slot].lane].ready.insert(ReadyNode(record, at: node))
    case .waiting:
      setPlace(.waiting, of: slot)
      waiting.insert(DateNode(date: record.availableDate, node: node))
      dropStaleDatesIfMany()
    case .parked:
      setPlace(.parked, of: slot)
      lanes[entries[slot].lane].parked.append(node)
    case .succeeded, .abandoned, .cancelled:
      setPlace(.finished, of: slot)
      ended[record.state, default: EndedLine()].append(node, finishedDate: record.finishedDate)
    case .running:
      preconditionFailure("a running task stands in no line")
    }
  }

  /// Begins to count a task whose insertion is committed, and lines it up.
  mutating func admit(_ slot: Int) {
    stateCounts[entries[slot].record.state, default: 0] += 1
    lineUpAnew(slot)
  }

  /// As `admit(_:)`, in the position that the task had in another table.
  mutating func readmit(_ slot: Int) {
    stateCounts[entries[slot].record.state, default: 0] += 1
    lastNumber = max(lastNumber, entries[slot].position)
    lineUp(slot)
  }

  mutating func setState(_ state: TaskState, of slot: Int) {
    stateCounts[entries[slot].record.state, default: 0] -= 1
    stateCounts[state, default: 0] += 1
    entries[slot].record.state = state
  }

  mutating func setPlace(_ place: Place, of slot: Int) {
    if entries[slot].place == .waiting { waitingCount -= 1 }
    if place == .waiting { waitingCount += 1 }
    entries[slot].place = place
  }

  mutating func end(_ slot: Int, as state: TaskState, at date: Date) {
    setState(state, of: slot)
    entries[slot].record.finishedDate = date
    lineUpAnew(slot)
  }

  mutating func remove(_ slot: Int) {
    let entry = entries[slot]
    if entry.place == .waiting { waitingCount -= 1 }
    if entry.place != .staged { stateCounts[entry.record.state, default: 0] -= 1 }
    slots[entry.record.id] = nil
    if let key = entry.record.uniqueKey, keyHolders[key] == slot { keyHolders[key] = nil }
    entries.remove(slot)
  }

  func isCurrent(_ node: Node, _ place: Place) -> Bool {
    guard let entry = entries.element(at: node.slot) else { return false }
    return entry.position == node.position && entry.place == place && !entry.isReserved
  }

  /// Keeps tasks that were replaced or moved from filling the line with nodes that mean nothing.
  private mutating func dropStaleDatesIfMany() {
    guard waiting.count > 2 * waitingCount + 1024 else { return }
    let entries = entries
    waiting.retain { date in
      guard let entry = entries.element(at: date.node.slot) else { return false }
      return entry.position == date.node.position && entry.place == .waiting
    }
  }
}
