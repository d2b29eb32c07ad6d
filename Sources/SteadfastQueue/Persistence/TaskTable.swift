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
  /// The ready tasks of one name, so that a name without a handler costs the others nothing.
  struct Lane: Sendable {
    var name: String
    var ready = OrderedLine<ReadyNode>()
    var readyCount = 0
    var parked: [Node] = []
    var parkedCount = 0
    /// How many tasks bear the name, whatever their state; without any, the lane is free.
    var taskCount = 0
  }

  /// A task at the position that it had when the node was made.
  struct Node: Sendable, Equatable {
    let slot: Int
    let position: UInt64
  }

  var entries = Slab(filler: Entry.none)
  var slots = SlotIndex()
  var lanes: [Lane] = []
  var laneIndices: [String: Int] = [:]
  private var freeLanes: [Int] = []
  /// The lanes of the last claim.
  var openLanes: [OpenLane] = []
  /// The lane of the task that was inserted last.
  private var lastLane = 0
  var waiting = OrderedLine<DateNode>()
  var waitingCount = 0
  private(set) var readyCount = 0
  /// While a file is read, the slots of tasks that have begun: of those that are leased, and of
  /// others that were, some more than once.
  var begun: [Int] = []
  var keyHolders: [String: Int] = [:]
  /// The tasks whose unique key a later one has taken, or is about to take.
  var keyLosers: [String: Set<Int>] = [:]
  var ended: [TaskState: EndedLine] = [:]
  /// How many prunings are staged and not committed.
  var stagedPrunes = 0
  /// How many bytes a file takes for all tasks, about.
  private(set) var byteCount = 0
  private(set) var stateCounts = StateCounts()
  private var lastNumber: UInt64 = 0
  /// The latest date of a claim since something was last ready: what was available then is ready.
  var horizon = Date.distantPast
  /// Whether the horizon is that of a process before this one: its clock may have been ahead.
  var presumesHorizon = false
  /// No task was made, and none failed, later than this.
  private(set) var latestDate = Date.distantPast

  /// A number that was never given before, for positions and lease tokens.
  mutating func nextNumber() -> UInt64 {
    lastNumber += 1
    return lastNumber
  }
}

// MARK: - Look-ups

extension TaskTable {
  func record(of id: TaskID) -> TaskRecord? {
    guard let slot = slot(of: id), entries[slot].place != .staged else { return nil }
    return entries[slot].record
  }

  func slot(of id: TaskID) -> Int? {
    slots.slot(of: id) { entries[$0].record.id == id }
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
      return states.reduce(0) { $0 + stateCounts[$1] }
    }
    return candidates(filter).reduce(0) { $0 + (filter.matches($1) ? 1 : 0) }
  }

  private func candidates(_ filter: TaskFilter) -> [TaskRecord] {
    if let ids = filter.ids { return ids.compactMap(record(of:)) }
    if let keys = filter.uniqueKeys {
      return slots(bearing: keys).compactMap { record(of: entries[$0].record.id) }
    }
    return slots.all.compactMap { slot in
      entries[slot].place == .staged ? nil : entries[slot].record
    }
  }
}

// MARK: - Moves

extension TaskTable {
  /// Makes room for so many tasks in all.
  mutating func reserveCapacity(_ count: Int) { slots.reserveCapacity(count) }

  /// The slot of a task that is in no look-up yet.
  mutating func insertEntry(of record: TaskRecord) -> Int {
    latestDate = max(latestDate, record.createdDate, record.failedDate ?? .distantPast)
    return entries.insert(Entry(record: record, place: .staged, lane: enterLane(of: record.name)))
  }

  /// The lane of a name, which has one task more from now on.
  private mutating func enterLane(of name: String) -> Int {
    // Mostly it is the name of the task before.
    let isLast = lastLane < lanes.count && lanes[lastLane].taskCount > 0
    let isAgain = isLast && lanes[lastLane].name == name
    let lane = isAgain ? lastLane : laneIndices[name] ?? newLane(of: name)
    lastLane = lane
    lanes[lane].taskCount += 1
    return lane
  }

  private mutating func newLane(of name: String) -> Int {
    let lane = freeLanes.popLast() ?? lanes.count
    if lane == lanes.count { lanes.append(Lane(name: name)) } else { lanes[lane].name = name }
    laneIndices[name] = lane
    return lane
  }

  private mutating func leaveLane(_ lane: Int) {
    lanes[lane].taskCount -= 1
    guard lanes[lane].taskCount == 0 else { return }
    laneIndices[lanes[lane].name] = nil
    lanes[lane] = Lane(name: "")
    freeLanes.append(lane)
  }

  /// Moves a task to the end of the line where its state and date put it.
  mutating func lineUpAnew(_ slot: Int) {
    entries[slot].position = nextNumber()
    lineUp(slot)
  }

  /// Lines a task up where its state and date put it, in its present position.
  mutating func lineUp(_ slot: Int) {
    let date = entries[slot].record.availableDate
    let state = entries[slot].record.state
    let node = Node(slot: slot, position: entries[slot].position)
    switch state {
    case .waiting where date <= horizon:
      setPlace(.ready, of: slot)
      let priority = entries[slot].record.priority.rawValue
      lanes[entries[slot].lane].ready.insert(ReadyNode(priority: priority, date: date, node: node))
      dropStaleReadyIfMany(entries[slot].lane)
    case .waiting:
      setPlace(.waiting, of: slot)
      waiting.insert(DateNode(date: date, node: node))
      dropStaleDatesIfMany()
    case .parked:
      setPlace(.parked, of: slot)
      lanes[entries[slot].lane].parked.append(node)
      dropStaleParkedIfMany(entries[slot].lane)
    case .paused:
      setPlace(.paused, of: slot)
    case .succeeded, .abandoned, .cancelled:
      setPlace(.finished, of: slot)
      let finishedDate = entries[slot].record.finishedDate
      ended[state, default: EndedLine()].append(node, finishedDate: finishedDate)
      dropStaleEndedIfMany(state)
    case .running:
      preconditionFailure("a running task stands in no line")
    }
  }

  /// Begins to count a task whose insertion is committed, and lines it up.
  mutating func admit(_ slot: Int) {
    stateCounts[entries[slot].record.state] += 1
    lineUpAnew(slot)
  }

  /// As `admit(_:)`, in the position that the task had in another table.
  mutating func readmit(_ slot: Int) {
    stateCounts[entries[slot].record.state] += 1
    lastNumber = max(lastNumber, entries[slot].position)
    lineUp(slot)
  }

  /// An attempt at a task has failed.
  mutating func note(_ failure: TaskFailure, on slot: Int) {
    let byteCount = entries[slot].record.failureByteCount
    entries[slot].record.note(failure)
    addBytes(entries[slot].record.failureByteCount - byteCount, to: slot)
    latestDate = max(latestDate, failure.date)
  }

  mutating func setState(_ state: TaskState, of slot: Int) {
    stateCounts[entries[slot].record.state] -= 1
    stateCounts[state] += 1
    entries[slot].record.state = state
  }

  mutating func setPlace(_ place: Place, of slot: Int) {
    count(-1, at: entries[slot].place, lane: entries[slot].lane)
    count(1, at: place, lane: entries[slot].lane)
    entries[slot].place = place
  }

  private mutating func count(_ difference: Int, at place: Place, lane: Int) {
    switch place {
    case .waiting: waitingCount += difference
    case .ready:
      readyCount += difference
      lanes[lane].readyCount += difference
    case .parked: lanes[lane].parkedCount += difference
    case .staged, .leased, .paused, .finished: break
    }
  }

  mutating func end(_ slot: Int, as state: TaskState, at date: Date) {
    setState(state, of: slot)
    entries[slot].record.finishedDate = date
    lineUpAnew(slot)
  }

  /// A file takes so many bytes more for a task.
  mutating func addBytes(_ count: Int, to slot: Int) {
    byteCount -= entries[slot].byteCount
    entries[slot].byteCount += count
    byteCount += entries[slot].byteCount
  }

  mutating func remove(_ slot: Int) {
    byteCount -= entries[slot].byteCount
    let lane = entries[slot].lane
    let place = entries[slot].place
    count(-1, at: place, lane: lane)
    if place != .staged { stateCounts[entries[slot].record.state] -= 1 }
    slots.remove(slot, of: entries[slot].record.id)
    leaveKey(of: slot)
    entries.remove(slot)
    leaveLane(lane)
  }

  func isCurrent(_ node: Node, _ place: Place) -> Bool {
    Self.isAt(node, place, in: entries) && !entries[node.slot].isReserved
  }
}

// MARK: - Stale nodes

/// A node of a task that has moved or gone stays in its line until it is met, or until such nodes
/// are the most. So does one of several of a task that was lined up again in its old position.
extension TaskTable {
  private static let toleratedStaleNodes = 1024

  private func isTooMany(_ nodes: Int, for tasks: Int) -> Bool {
    nodes > 2 * tasks + Self.toleratedStaleNodes
  }

  /// As ``isCurrent(_:_:)``, and true for a reserved task, which may stay where it is.
  private static func isAt(_ node: Node, _ place: Place, in entries: Slab<Entry>) -> Bool {
    entries[node.slot].position == node.position && entries[node.slot].place == place
  }

  /// Tells whether to keep a node: the first of each task that is there.
  private func filterOfNodes(at place: Place) -> (Node) -> Bool {
    let entries = entries
    var isKept = [Bool](repeating: false, count: entries.endSlot)
    return { node in
      guard Self.isAt(node, place, in: entries), !isKept[node.slot] else { return false }
      isKept[node.slot] = true
      return true
    }
  }

  private mutating func dropStaleDatesIfMany() {
    guard isTooMany(waiting.count, for: waitingCount) else { return }
    let isKept = filterOfNodes(at: .waiting)
    waiting.retain { isKept($0.node) }
  }

  private mutating func dropStaleReadyIfMany(_ lane: Int) {
    guard isTooMany(lanes[lane].ready.count, for: lanes[lane].readyCount) else { return }
    let isKept = filterOfNodes(at: .ready)
    lanes[lane].ready.retain { isKept($0.node) }
  }

  private mutating func dropStaleParkedIfMany(_ lane: Int) {
    guard isTooMany(lanes[lane].parked.count, for: lanes[lane].parkedCount) else { return }
    let isKept = filterOfNodes(at: .parked)
    lanes[lane].parked.removeAll { !isKept($0) }
  }

  private mutating func dropStaleEndedIfMany(_ state: TaskState) {
    guard isTooMany(ended[state]?.count ?? 0, for: stateCounts[state]) else { return }
    let isKept = filterOfNodes(at: .finished)
    ended[state]?.retain(where: isKept)
  }
}
