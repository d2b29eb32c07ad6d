/// The ready and the parked tasks in lanes: one lane for each queue, name, set of conditions and
/// payload version.
///
/// A claim takes each task from the lane whose first task comes first, among the names of which the
/// claim may take more tasks. The tasks without conditions whose payload has the first version are
/// in the main lane of their name. The other lanes of the name share the main lane's quota.
struct Lanes: Sendable {
  /// What the tasks in a lane require of a claim, besides room for their name.
  struct Requirements: Sendable, Equatable {
    var conditions: Set<TaskCondition> = []
    /// The payload version, which the queue must be able to decode.
    var version = 1

    var areUsual: Bool { version == 1 && conditions.isEmpty }
  }

  /// The ready tasks of one queue that have the same name and the same requirements.
  struct Lane: Sendable {
    private let comparedName: ComparedText
    fileprivate(set) var requirements = Requirements()
    /// The index of the lane of this name's tasks with the usual requirements, which may be this
    /// lane.
    fileprivate(set) var main: Int
    /// In a main lane, the indices of the other lanes of the name.
    fileprivate(set) var variants: [Int] = []
    /// The index of the queue in ``Lanes/queues``.
    fileprivate(set) var queue = 0
    fileprivate(set) var ready = SortedList<TaskTable.ReadyNode>()
    /// In a main lane, all parked tasks of the name.
    fileprivate(set) var parked = SortedList<TaskTable.Node>()
    /// In a main lane, all waiting tasks of the name that other tasks prevent from being claimed.
    fileprivate(set) var held = SortedList<TaskTable.DateNode>()
    /// In a main lane, all suspended tasks of the name that are ready.
    fileprivate(set) var waking = SortedList<TaskTable.DateNode>()
    /// In a main lane, the number of tasks with the name in each state.
    fileprivate(set) var stateCounts = StateCounts()
    /// In a main lane, the number of waiting tasks with the name that were postponed.
    fileprivate(set) var retryingCount = 0
    /// In a main lane, the number of tasks with the name, in any state; in another lane, the number
    /// of tasks with the name and the requirements.
    ///
    /// A lane without tasks may be reused for another name.
    fileprivate(set) var taskCount = 0
    /// The ready task that determines the lane's position in the ranking; `nil` if the lane is not
    /// in the ranking.
    fileprivate var rank: TaskTable.ReadyNode?
    /// How many more tasks with the name the search with this number may take, and the greatest
    /// payload version that it may take.
    fileprivate var quota = (search: UInt64(0), count: 0, version: 0)

    fileprivate init(name: String, main: Int) {
      comparedName = ComparedText(name)
      self.main = main
    }

    var name: String { comparedName.text }

    fileprivate func hasName(_ other: String) -> Bool { comparedName.isExactly(other) }
  }

  /// The lanes of one queue of the store.
  struct Queue: Sendable {
    fileprivate(set) var name = ""
    /// For each name that has tasks, the index of its main lane.
    fileprivate(set) var indices: [ExactText: Int] = [:]
    /// The lanes with ready tasks, ordered by their first ready tasks.
    fileprivate(set) var ranking = SortedList<TaskTable.RankedLane>()
  }

  private(set) var all: [Lane] = []
  /// The queues by number: first the unnamed queue, then each named queue that has ever had a task.
  var queues = [Queue()]
  private var queueNumbers: [ExactText: Int] = [:]
  private var free: [Int] = []
  /// The index of the main lane of the task that was inserted last.
  private var last = 0
  private var searchCount: UInt64 = 0

  subscript(lane: Int) -> Lane { _read { yield all[lane] } }

  // MARK: Names

  /// Returns the number of a queue; `nil` if the queue has never had a task.
  func number(ofQueue name: String) -> Int? { name.isEmpty ? 0 : queueNumbers[ExactText(name)] }

  private mutating func registerQueue(named name: String) -> Int {
    if let number = number(ofQueue: name) { return number }
    queueNumbers[ExactText(name)] = queues.count
    queues.append(Queue(name: name))
    return queues.count - 1
  }

  /// Counts one more task in the lane for a queue, a name and requirements, and returns the lane's
  /// index.
  mutating func addTask(
    queue queueName: String,
    name: String,
    requirements: Requirements = Requirements()
  ) -> Int {
    let queue = registerQueue(named: queueName)
    // Most tasks have the same name as the task that was added before.
    let isLast = last < all.count && all[last].taskCount > 0 && all[last].queue == queue
    let isAgain = isLast && all[last].hasName(name)
    let lane =
      isAgain ? last : queues[queue].indices[ExactText(name)] ?? newLane(of: name, in: queue)
    last = lane
    all[lane].taskCount += 1
    return requirements.areUsual ? lane : addTask(toVariantOf: lane, requirements)
  }

  private mutating func addTask(toVariantOf main: Int, _ requirements: Requirements) -> Int {
    let known = all[main].variants.first { all[$0].requirements == requirements }
    let lane = known ?? takeFreeLane(named: all[main].name, in: all[main].queue)
    if known == nil {
      all[lane].requirements = requirements
      all[lane].main = main
      all[main].variants.append(lane)
    }
    all[lane].taskCount += 1
    return lane
  }

  private mutating func newLane(of name: String, in queue: Int) -> Int {
    let lane = takeFreeLane(named: name, in: queue)
    queues[queue].indices[ExactText(name)] = lane
    return lane
  }

  private mutating func takeFreeLane(named name: String, in queue: Int) -> Int {
    let lane = free.popLast() ?? all.count
    var empty = Lane(name: name, main: lane)
    empty.queue = queue
    if lane == all.count { all.append(empty) } else { all[lane] = empty }
    return lane
  }

  /// Returns the index of the main lane of a name in a queue; `nil` if no task of the queue has the
  /// name.
  func lane(of name: String, in queue: String) -> Int? {
    number(ofQueue: queue).flatMap { queues[$0].indices[ExactText(name)] }
  }

  /// Subtracts one from the number of tasks in a lane.
  mutating func removeTask(from lane: Int) {
    let main = all[lane].main
    if main != lane { removeTask(fromVariant: lane, of: main) }
    all[main].taskCount -= 1
    guard all[main].taskCount == 0 else { return }
    queues[all[main].queue].indices[ExactText(all[main].name)] = nil
    setFree(main)
  }

  private mutating func removeTask(fromVariant lane: Int, of main: Int) {
    all[lane].taskCount -= 1
    guard all[lane].taskCount == 0 else { return }
    all[main].variants.removeAll { $0 == lane }
    setFree(lane)
  }

  private mutating func setFree(_ lane: Int) {
    all[lane] = Lane(name: "", main: lane)
    free.append(lane)
  }

  /// Returns whether any task requires a condition that is not in `conditions`.
  func containTasksRequiring(moreThan conditions: Set<TaskCondition>) -> Bool {
    all.contains { lane in
      let required = lane.requirements.conditions
      return !required.isEmpty && !required.isSubset(of: conditions)
    }
  }

  /// Returns whether a filter excludes all tasks with the name of a main lane, by their name or by
  /// the versions of their payloads.
  func mainLane(_ main: Int, containsOnlyTasksOutside filter: TaskFilter) -> Bool {
    if filter.excludedNames.containsExactly(all[main].name) { return true }
    guard let version = filter.unhandledBy?[exactly: all[main].name] else { return false }
    return ([main] + all[main].variants).allSatisfy { all[$0].requirements.version <= version }
  }

  // MARK: Tasks

  /// Adds `change`, which may be negative, to the number of tasks like this one with the name of a
  /// lane.
  mutating func changeCount(of record: TaskRecord, by change: Int, in lane: Int) {
    let main = all[lane].main
    all[main].stateCounts[record.state] += change
    if record.state == .waiting, record.isPostponed { all[main].retryingCount += change }
  }

  /// Returns the number of a queue's tasks in any of these states.
  func count(of states: Set<TaskState>, inQueue number: Int) -> Int {
    queues[number].indices.values.reduce(0) { $0 + all[$1].stateCounts.total(of: states) }
  }

  mutating func insertReady(_ node: TaskTable.ReadyNode, in lane: Int, isSuspended: Bool) {
    all[lane].ready.insert(node)
    if isSuspended { all[all[lane].main].waking.insert(node.byDate) }
    if all[lane].rank.map({ node < $0 }) ?? true { updateRank(of: lane) }
  }

  /// - Returns: Whether the task was in the lane.
  mutating func removeReady(_ node: TaskTable.ReadyNode, from lane: Int) -> Bool {
    let wasThere = all[lane].ready.remove(node)
    removeWaking(node, from: lane)
    if all[lane].rank == node { updateRank(of: lane) }
    return wasThere
  }

  /// Removes a task from the suspended tasks of its name, if it is one of them.
  private mutating func removeWaking(_ node: TaskTable.ReadyNode, from lane: Int) {
    let main = all[lane].main
    if !all[main].waking.isEmpty { all[main].waking.remove(node.byDate) }
  }

  mutating func insertHeld(_ node: TaskTable.DateNode, in lane: Int) {
    all[all[lane].main].held.insert(node)
  }

  /// - Returns: Whether the task was in the lane.
  mutating func removeHeld(_ node: TaskTable.DateNode, from lane: Int) -> Bool {
    all[all[lane].main].held.remove(node)
  }

  mutating func insertParked(_ node: TaskTable.Node, in lane: Int) {
    all[all[lane].main].parked.insert(node)
  }

  /// - Returns: Whether the task was in the lane.
  mutating func removeParked(_ node: TaskTable.Node, from lane: Int) -> Bool {
    all[all[lane].main].parked.remove(node)
  }

  /// Returns the parked tasks of a name in a queue, in order.
  func parked(of name: String, in queue: String) -> [TaskTable.Node] {
    lane(of: name, in: queue).map { all[$0].parked.elements() } ?? []
  }

  /// Moves a lane to the position of its first ready task in the ranking.
  private mutating func updateRank(of lane: Int) {
    let first = all[lane].ready.first
    guard all[lane].rank != first else { return }
    let queue = all[lane].queue
    if let rank = all[lane].rank {
      queues[queue].ranking.remove(TaskTable.RankedLane(first: rank, lane: lane))
    }
    if let first { queues[queue].ranking.insert(TaskTable.RankedLane(first: first, lane: lane)) }
    all[lane].rank = first
  }
}

// MARK: - Searching

extension Lanes {
  /// A claim's search for ready tasks, in order.
  ///
  /// Usually, the search goes through the ranking of all lanes. If the request allows only a few
  /// names, fewer than half as many as there are lanes with ready tasks, the search looks up the
  /// lanes of these names instead.
  struct Search: Sendable {
    fileprivate let request: ClaimRequest
    fileprivate let number: UInt64
    fileprivate let queue: Int
    /// The lanes of the request's names; `nil` if the search goes through the ranking.
    fileprivate var listed: SortedList<TaskTable.RankedLane>?
    /// The lanes without quota left, which are removed from the ranking until the search ends.
    fileprivate var exhausted: [TaskTable.RankedLane] = []
  }

  mutating func beginSearch(_ request: ClaimRequest, in queue: Int) -> Search {
    searchCount += 1
    // All properties are set at once, because setting one later would copy the search.
    return Search(
      request: request,
      number: searchCount,
      queue: queue,
      listed: lanesToLookUp(request, in: queue)
    )
  }

  /// Returns the lanes of the request's names; `nil` if a search should go through the ranking
  /// instead.
  private func lanesToLookUp(
    _ request: ClaimRequest,
    in queue: Int
  ) -> SortedList<TaskTable.RankedLane>? {
    guard request.otherNames <= 0, request.names.count < queues[queue].ranking.count / 2 else {
      return nil
    }
    var listed = SortedList<TaskTable.RankedLane>()
    for name in request.names.keys {
      guard let main = queues[queue].indices[ExactText(name)] else { continue }
      for lane in CollectionOfOne(main) + all[main].variants {
        guard let first = all[lane].ready.first else { continue }
        listed.insert(TaskTable.RankedLane(first: first, lane: lane))
      }
    }
    return listed
  }

  /// Returns the lane whose first ready task comes first, among the lanes with quota left.
  mutating func nextLane(in search: inout Search) -> Int? {
    if search.listed != nil {
      while let top = search.listed?.first {
        if hasQuota(top.lane, in: search) { return top.lane }
        search.listed?.popFirst()
      }
      return nil
    }
    while let top = queues[search.queue].ranking.first {
      if hasQuota(top.lane, in: search) { return top.lane }
      queues[search.queue].ranking.popFirst()
      search.exhausted.append(top)
    }
    return nil
  }

  /// Returns the slot of the first ready task of the lane that `nextLane(in:)` returned.
  func firstSlot(of lane: Int) -> Int {
    guard let first = all[lane].rank else {
      preconditionFailure("the ranking contains a lane without ready tasks")
    }
    return first.node.slot
  }

  /// Removes the first ready task of the lane that `nextLane(in:)` returned.
  mutating func takeFirst(of lane: Int, in search: inout Search, usesQuota: Bool) {
    if let first = all[lane].ready.popFirst() { removeWaking(first, from: lane) }
    updateRank(of: lane)
    if usesQuota { all[all[lane].main].quota.count -= 1 }
    if search.listed != nil {
      search.listed?.popFirst()
      if let next = all[lane].ready.first {
        search.listed?.insert(TaskTable.RankedLane(first: next, lane: lane))
      }
    }
  }

  mutating func endSearch(_ search: Search) {
    for lane in search.exhausted { queues[search.queue].ranking.insert(lane) }
  }

  /// Returns whether a search may take a task from a lane.
  ///
  /// The quota of the lane's name is looked up only once in each search.
  private mutating func hasQuota(_ lane: Int, in search: Search) -> Bool {
    let main = all[lane].main
    if all[main].quota.search != search.number {
      let request = search.request
      all[main].quota = (
        search.number, value(for: main, in: request.names) ?? request.otherNames,
        value(for: main, in: request.versions) ?? .max
      )
    }
    guard all[main].quota.count > 0, all[lane].requirements.version <= all[main].quota.version
    else { return false }
    return lane == main
      || all[lane].requirements.conditions.isSubset(of: search.request.conditions)
  }

  /// Returns the value for a lane's name.
  private func value(for lane: Int, in values: [String: Int]) -> Int? {
    // Comparing a name with a few other names takes less time than finding it by its hash.
    guard values.count <= 4 else { return values[exactly: all[lane].name] }
    for (name, value) in values where all[lane].hasName(name) { return value }
    return nil
  }
}

extension TaskRecord {
  /// What the task requires of a claim, besides room for its name.
  var requirements: Lanes.Requirements {
    Lanes.Requirements(conditions: conditions, version: payload.version)
  }
}
