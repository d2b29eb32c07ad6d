import SystemFoundation

/// The sorted lists of waiting, ready, held, parked and ended tasks. Each task is in at most one of
/// them.
///
/// While a staged change reserves a waiting or a ready task, the task is in no list, so that no
/// claim finds it. A parked or an ended task stays in its list.
extension TaskTable {
  /// Moves a task to the list for its state, behind all tasks with the same priority and date.
  mutating func putAtEndOfList(_ slot: Int) {
    removeFromList(slot)
    entries[slot].position = nextNumber()
    addToList(slot)
  }

  /// Moves a task to the end of the list for its state, unless a staged change reserves the task.
  ///
  /// A reserved task is added to the end of the list when the staged change is committed or rolled
  /// back.
  mutating func putAtEndOfListWhenFree(_ slot: Int) {
    guard entries[slot].isReserved else { return putAtEndOfList(slot) }
    entries[slot].position = nextNumber()
    setPlace(.waiting, of: slot)
  }

  /// Moves a task to the list for its state and date, and keeps the task's position number.
  mutating func putInList(_ slot: Int) {
    removeFromList(slot)
    addToList(slot)
  }

  private mutating func addToList(_ slot: Int) {
    let state = entries[slot].record.state
    if entries[slot].isOrdered, let key = orderKey(of: slot) { settleHead(of: key) }
    switch state {
    case .waiting, .suspended:
      if entries[slot].record.keyRole == .successor || entries[slot].isHeld {
        setPlace(.held, of: slot)
        guard state == .waiting else { return }
        lanes.insertHeld(dateNode(of: slot), in: entries[slot].lane)
        entries[slot].isInList = true
        return
      }
      if state == .suspended, !entries[slot].record.hasDueDate {
        return setPlace(.suspended, of: slot)
      }
      if entries[slot].record.availableDate <= cutoff {
        setPlace(.ready, of: slot)
        lanes.insertReady(
          readyNode(of: slot),
          in: entries[slot].lane,
          isSuspended: state == .suspended
        )
      } else {
        setPlace(.waiting, of: slot)
        waiting.insert(dateNode(of: slot))
      }
    case .parked:
      setPlace(.parked, of: slot)
      lanes.insertParked(node(of: slot), in: entries[slot].lane)
    case .paused:
      setPlace(.paused, of: slot)
      return
    case .succeeded, .abandoned, .cancelled:
      setPlace(.finished, of: slot)
      ended.insert(
        node(of: slot),
        state,
        in: queueNumber(of: slot),
        until: entries[slot].record.prunableDate
      )
    case .running:
      preconditionFailure("a running task can't be added to a list")
    }
    entries[slot].isInList = true
  }

  /// Removes a task from the list that contains it, if there is one.
  ///
  /// Call this before the task's state, priority, date or position changes, because the list finds
  /// the task by these.
  @inline(__always)
  mutating func removeFromList(_ slot: Int) {
    if entries[slot].isInList { removeFromCurrentList(slot) }
  }

  private mutating func removeFromCurrentList(_ slot: Int) {
    entries[slot].isInList = false
    let (node, lane) = (node(of: slot), entries[slot].lane)
    let wasThere: Bool
    switch entries[slot].place {
    case .waiting:
      wasThere = waiting.remove(dateNode(of: slot))
    case .ready:
      wasThere = lanes.removeReady(readyNode(of: slot), from: lane)
    case .parked:
      wasThere = lanes.removeParked(node, from: lane)
    case .finished:
      let record = entries[slot].record
      wasThere = ended.remove(node, record.state, in: lanes[lane].queue, until: record.prunableDate)
    case .held:
      wasThere = lanes.removeHeld(dateNode(of: slot), from: lane)
    case .staged, .leased, .suspended, .paused:
      wasThere = false
    }
    precondition(wasThere, "a task was changed before it was removed from its list")
  }

  // These functions are inlined because a caller of a function that is not inlined and only reads
  // would copy all of the table's variables: hundreds of bytes.

  @inline(__always)
  private func node(of slot: Int) -> Node {
    Node(slot: slot, position: entries[slot].position)
  }

  @inline(__always)
  private func dateNode(of slot: Int) -> DateNode {
    DateNode(date: entries[slot].record.availableDate, node: node(of: slot))
  }

  @inline(__always)
  private func readyNode(of slot: Int) -> ReadyNode {
    ReadyNode(
      priority: entries[slot].record.priority.rawValue,
      date: entries[slot].record.availableDate,
      node: node(of: slot)
    )
  }
}

extension TaskTable {
  /// Leases the first tasks that a request allows.
  ///
  /// This takes O(log n) for each leased task, however many names the request lists, and one
  /// look-up for each name that has ready tasks but may not be claimed, and that comes before other
  /// names. If the request allows only a few names, it takes one look-up for each of these instead.
  mutating func claim(_ request: ClaimRequest) -> Claim {
    makeTasksReady(until: request.now)
    guard let queue = lanes.number(ofQueue: request.queue) else {
      return Claim(tasks: [], nextDate: nil)
    }
    var tasks: [ClaimedTask] = []
    var leavesMore = false
    var search = lanes.beginSearch(request, in: queue)
    while !leavesMore, let lane = lanes.nextLane(in: &search) {
      let slot = lanes.firstSlot(of: lane)
      let isDue = entries[slot].record.availableDate <= request.now
      if isDue, tasks.count >= request.limit {
        leavesMore = true
      } else {
        lanes.takeFirst(of: lane, in: &search, usesQuota: isDue)
        entries[slot].isInList = false
        // A task that is not due was made ready when the clock showed a later date. The clock has
        // been set back since, so the task waits again.
        if isDue { tasks.append(lease(slot)) } else { putInList(slot) }
      }
    }
    lanes.endSearch(search)
    return Claim(tasks: tasks, nextDate: leavesMore ? request.now : waiting.first?.date)
  }

  /// Undoes a claim: each task returns to its previous position.
  mutating func unclaim(_ claim: Claim) {
    for task in claim.tasks.reversed() {
      commit(stage(.release(task.lease)))
    }
  }

  mutating func lease(_ slot: Int) -> ClaimedTask {
    removeFromList(slot)
    let token = nextNumber()
    setState(.running, of: slot)
    setPlace(.leased(token: token), of: slot)
    let record = shownRecord(of: slot)
    return ClaimedTask(record: record, lease: Lease(id: record.id, token: token))
  }

  /// Makes the waiting tasks ready that are available by `now`.
  private mutating func makeTasksReady(until now: Date) {
    cutoff = now
    while let first = waiting.first, first.date <= now {
      waiting.popFirst()
      entries[first.node.slot].isInList = false
      putInList(first.node.slot)
    }
  }
}

extension TaskTable {
  /// A task in a list that is sorted by position.
  ///
  /// In a file that was edited by hand, two tasks may have the same position.
  struct Node: Comparable, Sendable {
    let slot: Int
    let position: UInt64

    /// A node after those of all tasks.
    static var last: Node { Node(slot: .max, position: .max) }

    static func < (left: Node, right: Node) -> Bool {
      left.position != right.position ? left.position < right.position : left.slot < right.slot
    }
  }

  /// A ready task in a list that is sorted by priority (highest first), then by date, then by
  /// position.
  struct ReadyNode: Comparable, Sendable {
    let priority: Int
    let date: Date
    let node: Node

    var byDate: DateNode { DateNode(date: date, node: node) }

    static func < (left: ReadyNode, right: ReadyNode) -> Bool {
      if left.priority != right.priority { return left.priority > right.priority }
      if left.date != right.date { return left.date < right.date }
      return left.node < right.node
    }
  }

  /// A lane in a list that is sorted by the first ready task of each lane.
  struct RankedLane: Comparable, Sendable {
    let first: ReadyNode
    let lane: Int

    static func < (left: RankedLane, right: RankedLane) -> Bool { left.first < right.first }
  }

  /// A task in a list that is sorted by date.
  struct DateNode: Comparable, Sendable {
    let date: Date
    let node: Node

    static func < (left: DateNode, right: DateNode) -> Bool {
      left.date != right.date ? left.date < right.date : left.node < right.node
    }
  }
}

/// The ended tasks in a table, by queue and state, in the order in which they ended.
///
/// A pruning removes the oldest of these tasks. The tasks that no pruning may remove yet are in
/// separate lists, so that a pruning need not visit them.
struct EndedTasks: Sendable {
  /// The ended tasks of one queue in one state.
  private struct List: Sendable {
    var prunable = SortedList<TaskTable.Node>()
    /// The tasks that no pruning may remove before a date, sorted by that date.
    var staying = SortedList<TaskTable.DateNode>()
    /// The date of the latest pruning: tasks that had to stay until then have become prunable.
    var releaseDate = Date.distantPast
  }

  private var lists: [[TaskState: List]] = []
  /// The number of staged prunings.
  ///
  /// While any pruning is staged, it is unknown which ended tasks will stay in the table.
  var stagedPrunes = 0

  /// Adds a task; if there is a date, no pruning may remove the task before that date.
  mutating func insert(_ node: TaskTable.Node, _ state: TaskState, in queue: Int, until date: Date?)
  {
    while lists.count <= queue { lists.append([:]) }
    guard let date else { return lists[queue][state, default: List()].prunable.insert(node) }
    lists[queue][state, default: List()].staying.insert(TaskTable.DateNode(date: date, node: node))
  }

  /// Removes a task that was added with a state and a date.
  ///
  /// - Returns: Whether the task was found.
  mutating func remove(
    _ node: TaskTable.Node,
    _ state: TaskState,
    in queue: Int,
    until date: Date?
  ) -> Bool {
    guard queue < lists.count else { return false }
    if let date,
      lists[queue][state]?.staying.remove(TaskTable.DateNode(date: date, node: node)) == true
    {
      return true
    }
    return lists[queue][state]?.prunable.remove(node) ?? false
  }

  private func list(_ state: TaskState, in queue: Int) -> List? {
    queue < lists.count ? lists[queue][state] : nil
  }

  // MARK: Pruning

  /// Returns whether tasks became prunable at a date after `now`, because the clock was set back
  /// since.
  func hasReleased(_ state: TaskState, in queue: Int, after now: Date) -> Bool {
    list(state, in: queue).map { $0.releaseDate > now } ?? false
  }

  /// Returns the tasks that a pruning may remove, in the order in which they ended.
  func prunableTasks(in state: TaskState, of queue: Int) -> [TaskTable.Node] {
    list(state, in: queue)?.prunable.elements() ?? []
  }

  /// Makes the tasks prunable that had to stay until `now` or an earlier date.
  mutating func makePrunable(_ state: TaskState, in queue: Int, until now: Date) {
    guard queue < lists.count else { return }
    lists[queue][state]?.releaseDate = now
    while let first = lists[queue][state]?.staying.first, first.date <= now {
      lists[queue][state]?.staying.popFirst()
      lists[queue][state]?.prunable.insert(first.node)
    }
  }

  /// Returns the task that ended first, among the tasks that a pruning may remove.
  func firstPrunable(_ state: TaskState, in queue: Int) -> TaskTable.Node? {
    list(state, in: queue)?.prunable.first
  }

  /// Returns the number of tasks that a pruning may remove.
  func prunableCount(_ state: TaskState, in queue: Int) -> Int {
    list(state, in: queue)?.prunable.count ?? 0
  }

  /// Returns all tasks of a state in all queues, in no particular order.
  func nodes(in state: TaskState) -> [TaskTable.Node] {
    lists.compactMap { $0[state] }.flatMap { list in
      list.prunable.elements() + list.staying.elements().map(\.node)
    }
  }
}

extension TaskRecord {
  /// The date until which an ended task must stay in the table; `nil` if a pruning may remove it
  /// now.
  var prunableDate: Date? {
    blocksOrder || presentDependencies?.cause != nil
      ? Date(timeIntervalSinceReferenceDate: .infinity) : uniqueUntil
  }
}

/// The number of tasks in each state.
///
/// The counts are in a vector, with an element for each of the eight states. It is faster than a
/// dictionary, and every task changes them several times.
struct StateCounts: Sendable {
  private var counts = SIMD8<Int>()

  subscript(state: TaskState) -> Int {
    get { counts[Self.index(of: state)] }
    set { counts[Self.index(of: state)] = newValue }
  }

  var total: Int { counts.wrappedSum() }

  func total(of states: Set<TaskState>) -> Int { states.reduce(0) { $0 + self[$1] } }

  private static func index(of state: TaskState) -> Int {
    switch state {
    case .waiting: 0
    case .running: 1
    case .parked: 2
    case .paused: 3
    case .succeeded: 4
    case .abandoned: 5
    case .cancelled: 6
    case .suspended: 7
    }
  }
}
