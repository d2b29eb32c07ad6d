import SystemFoundation

/// All tasks of one store, indexed by ID, by unique key and by order key; ready tasks by rank,
/// waiting tasks by date, and dependent tasks by the tasks that they wait for.
///
/// The table is a value without clock, lock or I/O, and the only index of every embedded store. A
/// change is staged: it is checked, and reserves the tasks that it needs. After it is written, it
/// is committed. If it could not be written, it is rolled back. No claim returns a task that a
/// staged change has reserved, and a second change to it is stale. A store in memory performs both
/// steps at once.
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
  /// The number of values that all tasks remember.
  var memoryCount = 0
  /// The number of staged changes to the memory of each slot's task.
  var stagedMemories: [Int: Int] = [:]
  /// The slots of the tasks whose attempts have started; used while a file is read.
  ///
  /// They include all leased tasks, and some that were leased before. A slot may occur more than
  /// once.
  var begun: [Int] = []
  /// The task that the previous line has restored; used while a file is read.
  var lastRestored: TaskID?
  /// The approximate number of bytes that all tasks use in a file.
  private(set) var byteCount = 0
  private(set) var stateCounts = StateCounts()
  private var lastNumber: UInt64 = 0
  /// The date of the last claim.
  ///
  /// Tasks that are available by this date are in the lines of ready tasks. If an earlier claim had
  /// a later date, so are some that become available later; a claim that finds one makes it wait.
  var cutoff = Date.distantPast
  /// No task was created or failed, and no date was counted, after this date.
  private(set) var latestDate = Date.distantPast

  /// Returns a number that was never returned before, for positions and lease tokens.
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
      ? lanes.enter(record.queue, record.name, record.conditions) : lanes.enter("", record.name)
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
    count(slot)
    lineUpAnew(slot)
  }

  /// Does the same as `admit(_:)`, with the position that the task had in another table.
  mutating func unblock(_ slot: Int) {
    count(slot)
    noteNumber(entries[slot].position)
    lineUp(slot)
  }

  private mutating func count(_ slot: Int) {
    count(entries[slot].record.state, 1, of: slot)
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

  /// Records the dates that a task's dates were counted from.
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

extension TaskTable {
  /// A task and its place in the table.
  ///
  /// It uses 64 bytes. Properties that are smaller than a word are next to each other.
  struct Entry: Identifiable, Sendable {
    var record: TaskRecord
    private var flags: Flags = []
    private var narrowLane: Int32
    var place: Place
    /// Whether the task is in the line of its place.
    var isInLine = false
    /// Whether the table's memories contain something for the task.
    var remembers = false
    private var narrowByteCount: Int32 = 0
    /// The position in line, which increases when the task goes to the end of a line.
    ///
    /// It is 0 until the task first enters a line.
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

      mutating func set(_ flag: Flags, _ isSet: Bool) {
        if isSet { insert(flag) } else { remove(flag) }
      }
    }

    /// Whether a staged change reserves the task.
    var isReserved: Bool {
      get { flags.contains(.isReserved) }
      set { flags.set(.isReserved, newValue) }
    }

    /// Whether a later task has taken its unique key, as earlier versions of the package did.
    var hasLostKey: Bool {
      get { flags.contains(.hasLostKey) }
      set { flags.set(.hasLostKey, newValue) }
    }

    /// Whether another task has its unique key, although it has not ended.
    var isKeyless: Bool { hasLostKey || record.isDisplaced }

    /// Whether the task is in the line of its order key.
    var isOrdered: Bool {
      get { flags.contains(.isOrdered) }
      set { flags.set(.isOrdered, newValue) }
    }

    /// Whether another task is the head of its order key.
    var isBehindHead: Bool {
      get { flags.contains(.isBehindHead) }
      set { flags.set(.isBehindHead, newValue) }
    }

    /// Whether other tasks wait for its end, or have waited for it.
    var isAwaited: Bool {
      get { flags.contains(.isAwaited) }
      set { flags.set(.isAwaited, newValue) }
    }

    /// Whether it waits for a task that has not ended.
    var waitsForOthers: Bool {
      get { flags.contains(.waitsForOthers) }
      set { flags.set(.waitsForOthers, newValue) }
    }

    /// Whether a staged change to another task will also change this one.
    var isPinned: Bool {
      get { flags.contains(.isPinned) }
      set { flags.set(.isPinned, newValue) }
    }

    /// Whether a staged change ends it without success, or gives its successor its place.
    var isFailing: Bool {
      get { flags.contains(.isFailing) }
      set { flags.set(.isFailing, newValue) }
    }

    /// Whether other tasks prevent it from being claimed.
    var isHeld: Bool { !flags.isDisjoint(with: [.isBehindHead, .waitsForOthers, .isPinned]) }

    /// The lane of the task's name and conditions.
    var lane: Int {
      get { Int(narrowLane) }
      set { narrowLane = Int32(newValue) }
    }

    /// The approximate number of bytes that the task uses in a file; 0 without a file.
    var byteCount: Int {
      get { Int(narrowByteCount) }
      // A line of a file has at most 16 MiB. Only without a file can a text be longer.
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
    /// It is suspended without a date: only a completion or a request makes it wait.
    case suspended
    /// It waits for other tasks: the holder of its unique key, the head of its order key, or the
    /// tasks that it names.
    case held
  }
}

extension TaskTable {
  /// The contents of a table at one moment: a copy that shares memory with the table.
  ///
  /// It contains only the parts that are written to a file. A part with two owners is copied when
  /// it changes.
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

/// A value and its name in one piece of memory; a set finds it by its name.
///
/// A store with 10,000 schedules has as many values. With a text for each name, and a dictionary, a
/// schedule used 486 bytes in addition to its task; in this form, it uses 423.
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

  /// Makes the element to search a set for the value of this name.
  init(named name: String) { self.init(name, StoredValues.Value(bytes: [])) }

  var name: String { String(decoding: nameBytes, as: UTF8.self) }
  var nameBytes: ArraySlice<UInt8> { packed.prefix(Int(nameCount)) }

  var value: StoredValues.Value {
    StoredValues.Value(
      bytes: Array(packed.dropFirst(Int(nameCount))),
      byteCount: Int(fileByteCount)
    )
  }

  /// Returns whether both have the same name.
  static func == (left: PackedValue, right: PackedValue) -> Bool {
    left.nameBytes == right.nameBytes
  }

  func hash(into hasher: inout Hasher) { hasher.combine(nameBytes) }
}
