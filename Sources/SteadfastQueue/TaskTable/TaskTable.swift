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
  /// The tasks of one name that are ready or parked.
  struct Lane: Sendable {
    var name: String
    var ready = OrderedLine<ReadyNode>()
    var parked = OrderedLine<Node>()
    /// How many tasks have the name, whatever their state; without any, the lane is free.
    var taskCount = 0
    /// Where the lane stands in the ranking: its first ready task; `nil` if it stands nowhere.
    var rank: ReadyNode?
    /// How many tasks the claim of this number may take.
    var room = (claim: UInt64(0), count: 0)
  }

  var entries = Slab(filler: Entry.none)
  var slots = SlotIndex()
  /// The identities of all tasks.
  private(set) var ids = OrderedLine<TaskID>()
  var lanes: [Lane] = []
  var laneIndices: [String: Int] = [:]
  private var freeLanes: [Int] = []
  /// The lane of the task that was inserted last.
  private var lastLane = 0
  /// The lanes with ready tasks, by the first of them: what a claim takes comes from the first lane
  /// that has room, however many names there are.
  var ranking = OrderedLine<RankedLane>()
  /// How many claims there were.
  var claimCount: UInt64 = 0
  var waiting = OrderedLine<DateNode>()
  private(set) var readyCount = 0
  /// While a file is read, the slots of tasks that have begun: of those that are leased, and of
  /// others that were, some more than once.
  var begun: [Int] = []
  var keyHolders: [String: Int] = [:]
  /// The tasks whose unique key a later one has taken, or is about to take.
  var keyLosers: [String: Set<Int>] = [:]
  /// Tasks that have ended and are kept, in the order in which they ended.
  var ended: [TaskState: OrderedLine<Node>] = [:]
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

// MARK: - Moves

extension TaskTable {
  /// Makes room for so many tasks in all.
  mutating func reserveCapacity(_ count: Int) { slots.reserveCapacity(count) }

  /// Adds a task whose identity is free, and which is in no line yet.
  ///
  /// Returns its slot.
  mutating func insertEntry(of record: TaskRecord) -> Int {
    latestDate = max(latestDate, record.createdDate, record.failedDate ?? .distantPast)
    let lane = enterLane(of: record.name)
    let slot = entries.insert(Entry(record: record, place: .staged, lane: lane))
    slots.insert(slot, for: record.id)
    ids.insert(record.id)
    return slot
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
    if entries[slot].place == .ready { readyCount -= 1 }
    if place == .ready { readyCount += 1 }
    entries[slot].place = place
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
    leaveLine(slot)
    byteCount -= entries[slot].byteCount
    let (id, lane) = (entries[slot].record.id, entries[slot].lane)
    if entries[slot].place != .staged { stateCounts[entries[slot].record.state] -= 1 }
    setPlace(.staged, of: slot)
    slots.remove(slot, of: id)
    ids.remove(id)
    leaveKey(of: slot)
    entries.remove(slot)
    leaveLane(lane)
  }
}
