import SystemFoundation

/// All tasks of one store, indexed by ID, by unique key and by order key; ready tasks by rank,
/// waiting tasks by date, and dependent tasks by the tasks that they wait for.
///
/// The table is a value without clock, lock or I/O, and the only index of every embedded store. A
/// change is first staged: it is checked, and reserves the tasks that it needs. After the change
/// was written, it is committed; if it could not be written, it is rolled back. No claim returns a
/// task that a staged change has reserved, and a second change to such a task is stale. A store in
/// memory stages and commits a change at once.
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
  /// The total number of values that tasks remember.
  var memoryCount = 0
  /// The number of staged changes to the memory of each slot's task.
  var stagedMemories: [Int: Int] = [:]
  /// The slots of the tasks whose attempts have started; used while a file is read.
  ///
  /// They include the slots of all leased tasks, and of some tasks that are no longer leased. A
  /// slot may occur more than once.
  var begun: [Int] = []
  /// The task that the previous line has restored; used while a file is read.
  var lastRestored: TaskID?
  /// The approximate number of bytes that all tasks use in a file.
  private(set) var byteCount = 0
  private(set) var stateCounts = StateCounts()
  private var lastNumber: UInt64 = 0
  /// The date of the last claim.
  ///
  /// The tasks that are available by this date are in the lines of ready tasks. If an earlier claim
  /// had a later date, some tasks that become available later are in these lines, too; a claim that
  /// finds such a task makes it wait.
  var cutoff = Date.distantPast
  /// A date after which no task was created or has failed, and from which no date was counted.
  private(set) var latestDate = Date.distantPast

  /// Returns a number that was never returned before; it serves as a position or as a lease token.
  mutating func nextNumber() -> UInt64 {
    lastNumber += 1
    return lastNumber
  }

  /// Records that another table has used a number.
  mutating func noteNumber(_ number: UInt64) { lastNumber = max(lastNumber, number) }
}

// MARK: - Moves

extension TaskTable {
  /// Reserves capacity for `count` tasks in total.
  mutating func reserveCapacity(_ count: Int) { entries.reserveCapacity(count) }

  /// Adds a task with a new ID; the task is not in any line yet.
  ///
  /// - Returns: The task's slot.
  mutating func insertEntry(of record: TaskRecord) -> Int {
    latestDate = max(latestDate, record.createdDate)
    if record.hasFailureState { noteOrigin(of: record) }
    let lane =
      record.hasExtras
      ? lanes.addTask(queue: record.queue, name: record.name, conditions: record.conditions)
      : lanes.addTask(queue: "", name: record.name)
    let slot = entries.insert(Entry(record: record, place: .staged, lane: lane))
    // The table assigns the roles for unique keys.
    if record.keyRole != nil { entries[slot].record.keyRole = nil }
    // A new task remembers nothing, and the table counts the values that tasks remember.
    if record.memorySize != 0 { entries[slot].record.memorySize = 0 }
    ids.insert(record.id)
    return slot
  }

  /// Counts a task whose insertion is committed, and adds it to its line.
  mutating func admit(_ slot: Int) {
    countTask(slot)
    lineUpAnew(slot)
  }

  /// Counts a task whose insertion is committed, and adds it to its line at the position that it
  /// had in another table.
  mutating func admitAtOldPosition(_ slot: Int) {
    countTask(slot)
    noteNumber(entries[slot].position)
    lineUp(slot)
  }

  private mutating func countTask(_ slot: Int) {
    changeCount(of: entries[slot].record.state, by: 1, slot: slot)
    guard entries[slot].record.hasPrerequisites,
      !entries[slot].record.state.isFinished || entries[slot].record.blocksOrder
    else { return }
    joinOrder(slot)
  }

  /// Records that an attempt at a task has failed.
  mutating func note(_ failure: TaskFailure, on slot: Int) {
    let byteCount = entries[slot].record.failureByteCount
    entries[slot].record.note(failure)
    addBytes(entries[slot].record.failureByteCount - byteCount, to: slot)
    latestDate = max(latestDate, failure.date)
  }

  /// Updates ``latestDate`` with the dates from which a task's dates were counted.
  mutating func noteOrigin(of record: TaskRecord) {
    let origin = record.countedFrom ?? .distantPast
    latestDate = max(latestDate, origin, record.failedDate ?? .distantPast)
  }

  mutating func setState(_ state: TaskState, of slot: Int) {
    changeRecord(of: slot) { $0.state = state }
  }

  /// Changes a task's record, and updates the counts of states.
  @inline(__always)
  mutating func changeRecord(of slot: Int, _ change: (inout TaskRecord) -> Void) {
    changeCount(of: entries[slot].record.state, by: -1, slot: slot)
    change(&entries[slot].record)
    changeCount(of: entries[slot].record.state, by: 1, slot: slot)
  }

  private mutating func changeCount(of state: TaskState, by change: Int, slot: Int) {
    stateCounts[state] += change
    guard lanes.haveNamedQueues else { return }
    let queue = queueNumber(of: slot)
    if queue > 0 { lanes.queues[queue].stateCounts[state] += change }
  }

  /// Returns the number of the queue that a task is in.
  func queueNumber(of slot: Int) -> Int { lanes[entries[slot].lane].queue }

  mutating func setPlace(_ place: Place, of slot: Int) {
    entries[slot].place = place
  }

  mutating func end(_ slot: Int, as state: TaskState, at date: Date) {
    setState(state, of: slot)
    entries[slot].record.finishedDate = date
    retainKey(of: slot)
    if entries[slot].isOrdered, !entries[slot].record.blocksOrder { leaveOrder(slot) }
    lineUpAnew(slot)
  }

  /// Records that a task uses `count` more bytes in a file.
  mutating func addBytes(_ count: Int, to slot: Int) {
    byteCount -= entries[slot].byteCount
    entries[slot].byteCount += count
    byteCount += entries[slot].byteCount
  }

  mutating func remove(_ slot: Int) {
    leaveLine(slot)
    forgetMemory(of: slot)
    byteCount -= entries[slot].byteCount
    let (id, lane) = (entries[slot].record.id, entries[slot].lane)
    if entries[slot].place != .staged {
      changeCount(of: entries[slot].record.state, by: -1, slot: slot)
    }
    setPlace(.staged, of: slot)
    ids.remove(id)
    forgetKey(of: slot)
    if entries[slot].isOrdered { leaveOrder(slot) }
    if entries[slot].isAwaited || entries[slot].record.hasPrerequisites { leaveGraph(slot) }
    entries.remove(slot)
    lanes.removeTask(from: lane)
  }
}

extension TaskTable {
  /// A task and its place in the table.
  ///
  /// An entry uses 64 bytes, because the properties that are smaller than a word are next to each
  /// other.
  struct Entry: Identifiable, Sendable {
    var record: TaskRecord
    private var flags: Flags = []
    private var narrowLane: Int32
    var place: Place
    /// Whether the task stands in the line for its `place`.
    var isInLine = false
    /// Whether the table's memories contain something for the task.
    var remembers = false
    private var narrowByteCount: Int32 = 0
    /// The position in line, which increases when the task goes to the end of a line.
    ///
    /// The position is 0 until the task first enters a line.
    var position: UInt64 = 0

    init(record: TaskRecord, place: Place, lane: Int) {
      self.record = record
      self.place = place
      narrowLane = Int32(lane)
    }

    var id: TaskID { record.id }

    private struct Flags: OptionSet, Sendable {
      let rawValue: UInt8
      static let isReserved = Flags(rawValue: 1)
      static let hasLostKey = Flags(rawValue: 2)
      static let isOrdered = Flags(rawValue: 4)
      static let isBehindHead = Flags(rawValue: 8)
      static let isAwaited = Flags(rawValue: 16)
      static let waitsForOthers = Flags(rawValue: 32)
      static let isPinned = Flags(rawValue: 64)
      static let isFailing = Flags(rawValue: 128)

      mutating func set(_ flag: Flags, to isSet: Bool) {
        if isSet { insert(flag) } else { remove(flag) }
      }
    }

    /// Whether a staged change reserves the task.
    var isReserved: Bool {
      get { flags.contains(.isReserved) }
      set { flags.set(.isReserved, to: newValue) }
    }

    /// Whether a later task has taken the task's unique key, as in earlier versions of the package.
    var hasLostKey: Bool {
      get { flags.contains(.hasLostKey) }
      set { flags.set(.hasLostKey, to: newValue) }
    }

    /// Whether another task has the task's unique key, although the task has not ended.
    var isKeyless: Bool { hasLostKey || record.isDisplaced }

    /// Whether the task is in the line of its order key.
    var isOrdered: Bool {
      get { flags.contains(.isOrdered) }
      set { flags.set(.isOrdered, to: newValue) }
    }

    /// Whether another task is the head of its order key.
    var isBehindHead: Bool {
      get { flags.contains(.isBehindHead) }
      set { flags.set(.isBehindHead, to: newValue) }
    }

    /// Whether other tasks wait for the end of the task, or have waited for it.
    var isAwaited: Bool {
      get { flags.contains(.isAwaited) }
      set { flags.set(.isAwaited, to: newValue) }
    }

    /// Whether the task waits for another task that has not ended.
    var waitsForOthers: Bool {
      get { flags.contains(.waitsForOthers) }
      set { flags.set(.waitsForOthers, to: newValue) }
    }

    /// Whether a staged change to another task will also change this task.
    var isPinned: Bool {
      get { flags.contains(.isPinned) }
      set { flags.set(.isPinned, to: newValue) }
    }

    /// Whether a staged change ends the task without success, or replaces it by its successor.
    var isFailing: Bool {
      get { flags.contains(.isFailing) }
      set { flags.set(.isFailing, to: newValue) }
    }

    /// Whether other tasks prevent the task from being claimed.
    var isHeld: Bool { !flags.isDisjoint(with: [.isBehindHead, .waitsForOthers, .isPinned]) }

    /// The lane of the task's name and conditions.
    var lane: Int {
      get { Int(narrowLane) }
      set { narrowLane = Int32(newValue) }
    }

    /// The approximate number of bytes that the task uses in a file; 0 without a file.
    var byteCount: Int {
      get { Int(narrowByteCount) }
      // The number fits: a line of a file has at most 16 MiB. Without a file, a longer text is
      // possible.
      set { narrowByteCount = Int32(clamping: newValue) }
    }

    /// The contents of a free slot.
    static let none = Entry(
      record: TaskRecord(
        id: TaskID(high: 0, low: 0),
        name: "",
        payload: StoredPayload([], format: .binary),
        createdDate: .distantPast,
        availableDate: .distantPast
      ),
      place: .staged,
      lane: -1
    )
  }

  /// The location of a task.
  enum Place: Sendable, Equatable {
    case staged, waiting, ready, leased(token: UInt64), parked, paused, finished
    /// The task is suspended without a date: it waits again only after a completion or a request.
    case suspended
    /// The task waits for other tasks: the holder of its unique key, the head of its order key, or
    /// the tasks that it names.
    case held
  }
}

extension TaskTable {
  /// The contents of a table at one moment: a copy that shares memory with the table.
  ///
  /// The snapshot contains only the parts that are written to a file. A part that the table and a
  /// snapshot share is copied when the table changes it.
  struct Snapshot: Sendable {
    let tasks: Slab<Entry>
    let memories: TaskMemories
    let values: Set<PackedValue>
  }

  /// The present contents of the table.
  var snapshot: Snapshot {
    Snapshot(tasks: entries.slab, memories: memories, values: values.packed)
  }
}

/// A stored value and its name in one piece of memory; a set finds the value by its name.
///
/// A store with 10,000 schedules has at least 10,000 values. In this form, a schedule uses 423
/// bytes in addition to its task; with a text for each name, and a dictionary, it used 486.
struct PackedValue: Hashable, Sendable {
  /// The UTF-8 bytes of the name, and then those of the value.
  private let packed: [UInt8]
  private let nameCount: UInt32
  private let fileByteCount: UInt32

  init(_ name: String, _ value: StoredValues.Value) {
    var packed: [UInt8] = []
    packed.reserveCapacity(name.utf8.count + value.bytes.count)
    packed.append(contentsOf: name.utf8)
    nameCount = UInt32(packed.count)
    packed.append(contentsOf: value.bytes)
    self.packed = packed
    fileByteCount = UInt32(clamping: value.byteCount)
  }

  /// Makes an element that equals the value with this name, to find that value in a set.
  init(named name: String) { self.init(name, StoredValues.Value(bytes: [])) }

  var name: String { String(decoding: nameBytes, as: UTF8.self) }
  var nameBytes: ArraySlice<UInt8> { packed.prefix(Int(nameCount)) }

  var value: StoredValues.Value {
    StoredValues.Value(
      bytes: Array(packed.dropFirst(Int(nameCount))),
      byteCount: Int(fileByteCount)
    )
  }

  /// Returns whether both values have the same name.
  static func == (left: PackedValue, right: PackedValue) -> Bool {
    left.nameBytes == right.nameBytes
  }

  func hash(into hasher: inout Hasher) { hasher.combine(nameBytes) }
}
