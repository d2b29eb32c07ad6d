import SystemFoundation

/// All tasks of a store in memory or in a file, which can be found by ID, by unique key, by order
/// key, by priority and date, and by the tasks that they wait for.
///
/// The table reads no clock, takes no lock and does no I/O. A change has two steps. First it is
/// staged: the table checks it, and reserves the tasks that it affects. After the change is
/// written, it is committed; if it can't be written, it is rolled back. No claim returns a task
/// that is reserved, and a second change to a reserved task is stale. A store in memory commits
/// each change as soon as it is staged.
struct TaskTable: Sendable {
  /// The tasks; the index of a task in this slab is its slot.
  var entries = IdentifiedSlab(filler: Entry.none)
  private(set) var ids = SortedList<TaskID>()
  var keys = UniqueKeys()
  var order = OrderKeys()
  var graph = DependencyGraph()
  /// The ready and the parked tasks, by queue, name and conditions.
  var lanes = Lanes()
  /// The waiting tasks whose dates have not come, in the order of their dates.
  var waiting = SortedList<DateNode>()
  var ended = EndedTasks()
  var values = StoredValues()
  var memories = TaskMemories()
  /// The total number of values in the memories of all tasks.
  var memoryCount = 0
  /// For each slot, the number of staged changes to the memory of its task.
  var stagedMemories: [Int: Int] = [:]
  /// The slots of the tasks whose attempts have started; used only while a file is read.
  ///
  /// The array contains the slots of all leased tasks. It may also contain slots of tasks that are
  /// no longer leased, and the same slot several times.
  var begun: [Int] = []
  /// The ID of the task that the previous line of a compacted file restored; used only while the
  /// file is read.
  var lastRestored: TaskID?
  /// The approximate number of bytes that all tasks use in a file.
  private(set) var byteCount = 0
  private(set) var stateCounts = StateCounts()
  private var lastNumber: UInt64 = 0
  /// The date of the last claim: the tasks that are available by this date are ready, and later
  /// ones wait.
  ///
  /// If the clock was set back before the claim, some tasks with later dates are ready, too. A
  /// claim that finds such a task makes it wait again.
  var cutoff = Date.distantPast
  /// A date that is not earlier than any task's creation, last failure or last postponement.
  private(set) var latestDate = Date.distantPast

  /// Returns a new number, which serves as a task's position or as a lease token.
  mutating func nextNumber() -> UInt64 {
    lastNumber += 1
    return lastNumber
  }

  /// Makes ``nextNumber()`` return only numbers greater than `number`, which another table has
  /// used.
  mutating func skipNumbers(through number: UInt64) { lastNumber = max(lastNumber, number) }
}

// MARK: - Moves

extension TaskTable {
  /// Reserves capacity for `count` tasks in total.
  mutating func reserveCapacity(_ count: Int) { entries.reserveCapacity(count) }

  /// Adds a task with a new ID, which claims and counts ignore until the insertion is committed.
  ///
  /// - Returns: The task's slot.
  mutating func insertEntry(of record: TaskRecord) -> Int {
    latestDate = max(latestDate, record.createdDate)
    if record.hasFailureState { advanceLatestDate(for: record) }
    let lane =
      record.hasExtras || record.payload.version != 1
      ? lanes.addTask(queue: record.queue, name: record.name, requirements: record.requirements)
      : lanes.addTask(queue: "", name: record.name)
    let slot = entries.insert(Entry(record: record, place: .staged, lane: lane))
    // The table decides which task is the holder or the successor of a unique key, not the caller.
    if record.keyRole != nil { entries[slot].record.keyRole = nil }
    // A new task has an empty memory, whatever the caller's record says.
    if record.memorySize != 0 { entries[slot].record.memorySize = 0 }
    ids.insert(record.id)
    return slot
  }

  /// Counts a task whose insertion is committed, and adds it to the end of its list.
  mutating func countAndPutAtEndOfList(_ slot: Int) {
    countTask(slot)
    putAtEndOfList(slot)
  }

  /// Counts a task whose insertion is committed, and adds it to its list at the position that it
  /// had in another table.
  mutating func countAndPutInList(_ slot: Int) {
    countTask(slot)
    skipNumbers(through: entries[slot].position)
    putInList(slot)
  }

  private mutating func countTask(_ slot: Int) {
    changeCount(of: slot, by: 1)
    guard entries[slot].record.hasPrerequisites,
      !entries[slot].record.state.isFinished || entries[slot].record.blocksOrder
    else { return }
    joinOrder(slot)
  }

  mutating func recordFailure(_ failure: TaskFailure, of slot: Int) {
    let byteCount = entries[slot].record.failureByteCount
    entries[slot].record.note(failure)
    addBytes(entries[slot].record.failureByteCount - byteCount, to: slot)
    latestDate = max(latestDate, failure.date)
  }

  /// Advances ``latestDate`` to the date of a task's last failure or postponement, if that is
  /// later.
  mutating func advanceLatestDate(for record: TaskRecord) {
    let origin = record.countedFrom ?? .distantPast
    latestDate = max(latestDate, origin, record.failedDate ?? .distantPast)
  }

  mutating func setState(_ state: TaskState, of slot: Int) {
    changeRecord(of: slot) { $0.state = state }
  }

  /// Changes a task's record, and updates the number of tasks in each state.
  @inline(__always)
  mutating func changeRecord(of slot: Int, _ change: (inout TaskRecord) -> Void) {
    changeCount(of: slot, by: -1)
    change(&entries[slot].record)
    changeCount(of: slot, by: 1)
  }

  private mutating func changeCount(of slot: Int, by change: Int) {
    let state = entries[slot].record.state
    stateCounts[state] += change
    lanes.changeCount(of: entries[slot].record, by: change, in: entries[slot].lane)
  }

  func queueNumber(of slot: Int) -> Int { lanes[entries[slot].lane].queue }

  mutating func setPlace(_ place: Place, of slot: Int) {
    entries[slot].place = place
  }

  mutating func end(_ slot: Int, as state: TaskState, at date: Date) {
    setState(state, of: slot)
    entries[slot].record.finishedDate = date
    entries[slot].record.command = nil
    retainKey(of: slot)
    if entries[slot].isOrdered, !entries[slot].record.blocksOrder { leaveOrder(slot) }
    putAtEndOfList(slot)
  }

  /// Adds `count`, which may be negative, to the number of bytes that a task uses in a file.
  mutating func addBytes(_ count: Int, to slot: Int) {
    byteCount -= entries[slot].byteCount
    entries[slot].byteCount += count
    byteCount += entries[slot].byteCount
  }

  mutating func remove(_ slot: Int) {
    removeFromList(slot)
    forgetMemory(of: slot)
    byteCount -= entries[slot].byteCount
    let (id, lane) = (entries[slot].record.id, entries[slot].lane)
    if entries[slot].place != .staged {
      changeCount(of: slot, by: -1)
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
  /// A task, its position, and what prevents it from being claimed.
  ///
  /// An entry uses only 64 bytes, because the properties that are smaller than a word are next to
  /// each other.
  struct Entry: Identifiable, Sendable {
    var record: TaskRecord
    private var flags: Flags = []
    private var narrowLane: Int32
    var place: Place
    /// Whether the task is in the list for its `place`.
    var isInList = false
    /// Whether the task's memory contains any value.
    var remembers = false
    private var narrowByteCount: Int32 = 0
    /// A number that orders tasks with the same priority and date; a task that is moved to the end
    /// of a list gets a new number.
    ///
    /// The number is 0 until the task is first added to a list.
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

    /// Whether a later task has taken the task's unique key, as earlier versions of this package
    /// allowed.
    var hasLostKey: Bool {
      get { flags.contains(.hasLostKey) }
      set { flags.set(.hasLostKey, to: newValue) }
    }

    /// Whether another task has the task's unique key, although the task has not ended.
    var isKeyless: Bool { hasLostKey || record.isDisplaced }

    /// Whether the task is in the list of the tasks with its order key.
    var isOrdered: Bool {
      get { flags.contains(.isOrdered) }
      set { flags.set(.isOrdered, to: newValue) }
    }

    /// Whether the task must wait for another task with the same order key.
    var isBehindHead: Bool {
      get { flags.contains(.isBehindHead) }
      set { flags.set(.isBehindHead, to: newValue) }
    }

    /// Whether other tasks wait, or have waited, for this task to end.
    var isAwaited: Bool {
      get { flags.contains(.isAwaited) }
      set { flags.set(.isAwaited, to: newValue) }
    }

    /// Whether the task depends on another task that has not ended.
    var waitsForOthers: Bool {
      get { flags.contains(.waitsForOthers) }
      set { flags.set(.waitsForOthers, to: newValue) }
    }

    /// Whether a staged change to another task will also change this task.
    var isPinned: Bool {
      get { flags.contains(.isPinned) }
      set { flags.set(.isPinned, to: newValue) }
    }

    /// Whether a staged change ends the task without success, or replaces it by another task with
    /// its unique key.
    var isFailing: Bool {
      get { flags.contains(.isFailing) }
      set { flags.set(.isFailing, to: newValue) }
    }

    /// Whether other tasks prevent the task from being claimed.
    var isHeld: Bool { !flags.isDisjoint(with: [.isBehindHead, .waitsForOthers, .isPinned]) }

    /// The index of the lane that contains the task when it is ready.
    var lane: Int {
      get { Int(narrowLane) }
      set { narrowLane = Int32(newValue) }
    }

    /// The approximate number of bytes that the task uses in a file; 0 without a file.
    var byteCount: Int {
      get { Int(narrowByteCount) }
      // A line of a file has at most 16 MiB, so the number fits. A task in memory may be larger.
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

  /// Which of the table's lists contains a task, or why none does.
  enum Place: Sendable, Equatable {
    case staged, waiting, ready, leased(token: UInt64), parked, paused, finished
    /// The task is suspended without a date: only a completion or a caller can wake it.
    case suspended
    /// The task waits for other tasks: for one with the same unique key or order key, or for its
    /// dependencies.
    case held
  }
}

extension TaskTable {
  /// The contents of a table at one moment: a copy that shares memory with the table.
  ///
  /// The snapshot contains only what is written to a file. When the table changes memory that it
  /// shares with a snapshot, it copies that memory first.
  struct Snapshot: Sendable {
    let tasks: Slab<Entry>
    let memories: TaskMemories
    let values: Set<PackedValue>
  }

  /// The current contents of the table.
  var snapshot: Snapshot {
    Snapshot(tasks: entries.slab, memories: memories, values: values.packed)
  }
}

/// A stored value and its name, in one array of bytes; two elements are equal if their names are.
///
/// A set of these elements uses less memory than a dictionary: a schedule, which is stored as a
/// value, uses 423 bytes in addition to its task, instead of 486.
struct PackedValue: Hashable, Sendable {
  /// The UTF-8 bytes of the name, followed by the bytes of the value.
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

  /// Makes an element that equals the value with this name, to look up the value in a set.
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
