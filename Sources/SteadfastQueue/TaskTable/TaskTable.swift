#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// All tasks of one store: by ID, ready by rank, waiting by date, by unique key, by order key and
/// by the tasks that they wait for.
///
/// The table is a value without clock, lock or I/O, and the one index behind every embedded store.
/// A change is staged: it is checked, and what it needs is reserved. Once it is written, it is
/// committed. If it could not be written, it is rolled back. No claim takes a task that a staged
/// change has reserved, and a second change to it is stale. A store in memory does both steps at
/// once.
struct TaskTable: Sendable {
  var entries = IdentifiedSlab(filler: Entry.none)
  /// The IDs of all tasks.
  private(set) var ids = OrderedLine<TaskID>()
  var keys = UniqueKeys()
  var order = OrderKeys()
  var graph = DependencyGraph()
  /// The ready and the parked tasks.
  var lanes = Lanes()
  /// The tasks that wait for their dates.
  var waiting = OrderedLine<DateNode>()
  var ended = EndedTasks()
  var values = StoredValues()
  var memories = TaskMemories()
  /// How many values all tasks remember.
  var memoryCount = 0
  /// How many changes are staged to what the tasks of these slots remember.
  var stagedMemories: [Int: Int] = [:]
  /// The slots of the tasks that have begun; used while a file is read.
  ///
  /// They are those of all leased tasks, and of some that were leased before. A slot may occur more
  /// than once.
  var begun: [Int] = []
  /// The task that the last line has restored; used while a file is read.
  var lastRestored: TaskID?
  /// About how many bytes a file takes for all tasks.
  private(set) var byteCount = 0
  private(set) var stateCounts = StateCounts()
  private var lastNumber: UInt64 = 0
  /// The date of the last claim.
  ///
  /// Tasks that are available by this date are in the lines of ready tasks. So are some that are
  /// available later, if an earlier claim had a later date; a claim that meets one lets it wait.
  var cutoff = Date.distantPast
  /// No task was created, none failed, and no date was counted, after this date.
  var latestDate = Date.distantPast

  /// Returns a number that was never returned before, for positions and lease tokens.
  mutating func nextNumber() -> UInt64 {
    lastNumber += 1
    return lastNumber
  }

  /// Notes that another table has used a number.
  mutating func noteNumber(_ number: UInt64) { lastNumber = max(lastNumber, number) }
}

// MARK: - Moves

extension TaskTable {
  /// Makes room for `count` tasks in all.
  mutating func reserveCapacity(_ count: Int) { entries.reserveCapacity(count) }

  /// Adds a task whose ID is free, and which is in no line yet.
  ///
  /// - Returns: The task's slot.
  mutating func insertEntry(of record: TaskRecord) -> Int {
    latestDate = max(latestDate, record.createdDate)
    if record.hasFailureState { noteOrigin(of: record) }
    let lane =
      record.hasExtras
      ? lanes.enter(record.queue, record.name, record.conditions) : lanes.enter("", record.name)
    let slot = entries.insert(Entry(record: record, place: .staged, lane: lane))
    // The table gives the roles for unique keys.
    if record.keyRole != nil { entries[slot].record.keyRole = nil }
    // A new task remembers nothing, and the table counts what tasks remember.
    if record.memorySize != 0 { entries[slot].record.memorySize = 0 }
    ids.insert(record.id)
    return slot
  }

  /// Counts a task whose insertion is committed, and lines it up.
  mutating func admit(_ slot: Int) {
    count(slot)
    lineUpAnew(slot)
  }

  /// Does what `admit(_:)` does, in the position that the task had in another table.
  mutating func readmit(_ slot: Int) {
    count(slot)
    noteNumber(entries[slot].position)
    lineUp(slot)
  }

  private mutating func count(_ slot: Int) {
    count(entries[slot].record.state, 1, of: slot)
    guard entries[slot].record.hasPrerequisites,
      !entries[slot].record.state.isFinished || entries[slot].record.holdsUpOthers
    else { return }
    joinOrder(slot)
  }

  /// Notes that an attempt at a task has failed.
  mutating func note(_ failure: TaskFailure, on slot: Int) {
    let byteCount = entries[slot].record.failureByteCount
    entries[slot].record.note(failure)
    addBytes(entries[slot].record.failureByteCount - byteCount, to: slot)
    latestDate = max(latestDate, failure.date)
  }

  /// Notes from which dates those of a task were counted.
  mutating func noteOrigin(of record: TaskRecord) {
    let origin = record.countedFrom ?? .distantPast
    latestDate = max(latestDate, origin, record.failedDate ?? .distantPast)
  }

  mutating func setState(_ state: TaskState, of slot: Int) {
    changeRecord(of: slot) { $0.state = state }
  }

  /// Changes a task's record, and counts the change of its state.
  @inline(__always)
  mutating func changeRecord(of slot: Int, _ change: (inout TaskRecord) -> Void) {
    count(entries[slot].record.state, -1, of: slot)
    change(&entries[slot].record)
    count(entries[slot].record.state, 1, of: slot)
  }

  private mutating func count(_ state: TaskState, _ change: Int, of slot: Int) {
    stateCounts[state] += change
    guard lanes.haveNamedQueues else { return }
    let queue = queueNumber(of: slot)
    if queue > 0 { lanes.queues[queue].stateCounts[state] += change }
  }

  /// The number of the queue that a task is in.
  func queueNumber(of slot: Int) -> Int { lanes[entries[slot].lane].queue }

  mutating func setPlace(_ place: Place, of slot: Int) {
    entries[slot].place = place
  }

  mutating func end(_ slot: Int, as state: TaskState, at date: Date) {
    setState(state, of: slot)
    entries[slot].record.finishedDate = date
    retainKey(of: slot)
    if entries[slot].isOrdered, !entries[slot].record.holdsUpOthers { leaveOrder(slot) }
    lineUpAnew(slot)
  }

  /// Notes that a file takes `count` more bytes for a task.
  mutating func addBytes(_ count: Int, to slot: Int) {
    byteCount -= entries[slot].byteCount
    entries[slot].byteCount += count
    byteCount += entries[slot].byteCount
  }

  mutating func remove(_ slot: Int) {
    leaveLine(slot)
    forget(slot)
    byteCount -= entries[slot].byteCount
    let (id, lane) = (entries[slot].record.id, entries[slot].lane)
    if entries[slot].place != .staged { count(entries[slot].record.state, -1, of: slot) }
    setPlace(.staged, of: slot)
    ids.remove(id)
    forgetKey(of: slot)
    if entries[slot].isOrdered { leaveOrder(slot) }
    if entries[slot].isAwaited || entries[slot].record.hasPrerequisites { leaveGraph(slot) }
    entries.remove(slot)
    lanes.leave(lane)
  }
}
