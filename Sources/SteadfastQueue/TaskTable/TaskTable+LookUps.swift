import SystemFoundation

extension TaskTable {
  func record(of id: TaskID) -> TaskRecord? {
    guard let slot = slot(of: id), entries[slot].place != .staged else { return nil }
    return shownRecord(of: slot)
  }

  @inline(__always)
  func slot(of id: TaskID) -> Int? {
    entries.slot(of: id)
  }

  /// Returns the first tasks that match a filter and come after `id`, in the order of their IDs or,
  /// with `newestFirst`, in the reverse order.
  ///
  /// This takes O(k + log n) for the k tasks that are visited: the returned tasks, and the tasks
  /// between them that don't match the filter.
  func tasks(
    matching filter: TaskFilter,
    after id: TaskID?,
    limit: Int,
    newestFirst: Bool = false
  ) -> [TaskRecord] {
    var lookUp = TaskLookUp(filter, after: id, limit: limit, newestFirst: newestFirst)
    while !lookUp.isOver { advance(&lookUp) }
    return lookUp.records
  }

  func count(matching filter: TaskFilter) -> Int {
    if let count = knownCount(matching: filter) { return count }
    var lookUp = TaskLookUp(counting: filter)
    while !lookUp.isOver { advance(&lookUp) }
    return lookUp.count
  }

  /// Returns the number of tasks that match a filter, if the filter consists of states and possibly
  /// a queue; `nil` for any other filter.
  ///
  /// This takes O(1) for the tasks of all queues, and O(n) for the n names of a queue's tasks.
  func knownCount(matching filter: TaskFilter) -> Int? {
    guard let states = filter.states,
      filter == TaskFilter(queue: filter.queue, states: states)
    else { return nil }
    return count(of: states, in: filter.queue)
  }

  /// Returns the number of tasks in any of these states; a `queue` of `nil` stands for all queues.
  private func count(of states: Set<TaskState>, in queue: String?) -> Int {
    guard let queue else { return stateCounts.total(of: states) }
    return lanes.number(ofQueue: queue).map { lanes.count(of: states, inQueue: $0) } ?? 0
  }

  /// Continues a look-up with its next slice of at most `TaskLookUp.sliceSize` tasks.
  func advance(_ lookUp: inout TaskLookUp) {
    if !lookUp.hasBegun {
      lookUp.hasBegun = true
      if matchesNothing(lookUp.filter) { return lookUp.isOver = true }
      if case .table = lookUp.source, let few = endedTasksIfFew(in: lookUp.filter) {
        lookUp.restrict(to: few)
      }
    }
    switch lookUp.source {
    case .table(let id):
      let slice =
        lookUp.newestFirst
        ? ids.reversedElements(before: id, limit: TaskLookUp.sliceSize)
        : ids.elements(after: id, limit: TaskLookUp.sliceSize)
      visit(slice, in: &lookUp)
      if slice.count < TaskLookUp.sliceSize { lookUp.isOver = true }
      lookUp.source = .table(after: slice.last)
    case .keys(let keys, let next, var found):
      let end = min(next + TaskLookUp.sliceSize, keys.count)
      for slot in self.keys.slots(with: keys[next..<end]) { found.insert(entries[slot].record.id) }
      lookUp.source = .keys(keys, next: end, found: found)
      if end == keys.count { lookUp.restrict(to: found) }
    case .ids(let ids, let next):
      let end = min(next + TaskLookUp.sliceSize, ids.count)
      visit(ids[next..<end], in: &lookUp)
      if end == ids.count { lookUp.isOver = true }
      lookUp.source = .ids(ids, next: end)
    }
  }

  private func visit(_ ids: some Sequence<TaskID>, in lookUp: inout TaskLookUp) {
    for id in ids where !lookUp.isOver {
      if let record = record(of: id) { lookUp.addIfMatching(record) }
    }
  }

  /// Returns whether no task can match a filter, as far as that is known without visiting tasks.
  private func matchesNothing(_ filter: TaskFilter) -> Bool {
    if let states = filter.states, count(of: states, in: filter.queue) == 0 { return true }
    if let conditions = filter.unmetBy, !lanes.containTasksRequiring(moreThan: conditions) {
      return true
    }
    guard let queue = filter.queue else { return false }
    guard let number = lanes.number(ofQueue: queue) else { return true }
    let indices = lanes.queues[number].indices
    if let names = filter.names, names.count <= TaskLookUp.sliceSize {
      return names.allSatisfy { name in
        indices[ExactText(name)].map { lanes.mainLane($0, containsOnlyTasksOutside: filter) }
          ?? true
      }
    }
    guard indices.count <= TaskLookUp.sliceSize else { return false }
    return indices.values.allSatisfy { lanes.mainLane($0, containsOnlyTasksOutside: filter) }
  }

  /// Returns the IDs of all tasks in the filter's states, if these are final states and the tasks
  /// are few.
  ///
  /// So a look-up of a few abandoned tasks need not visit a million other tasks.
  private func endedTasksIfFew(in filter: TaskFilter) -> Set<TaskID>? {
    guard let states = filter.states, states.allSatisfy(\.isFinished),
      count(of: states, in: nil) <= TaskLookUp.sliceSize
    else { return nil }
    return Set(states.flatMap(ended.nodes).map { entries[$0.slot].record.id })
  }
}

/// Counts the tasks by queue, name and state, without visiting most of them.
extension TaskTable {
  /// Some tasks of one name that are due.
  private struct Due {
    var count = 0
    var oldest: Date?

    mutating func add(_ count: Int, oldest date: Date?) {
      self.count += count
      oldest = [oldest, date].compactMap(\.self).min()
    }
  }

  /// Returns the census of all tasks.
  ///
  /// This takes O(log n) for each name, and each priority of its tasks. Of the tasks that were not
  /// ready at the last claim, it visits either those whose dates have come since, or the others,
  /// whichever are fewer. A task that a staged change reserves counts, and may count as due.
  func census(at now: Date) -> TaskCensus {
    let names = lanes.all.indices.filter(isMainLane)
    let passed = passedTasks(of: names, at: now)
    return TaskCensus(
      date: now,
      rows: names.flatMap { lane in
        var due = listedTasks(of: lane, at: now)
        if let passed = passed[lane] { due.add(passed.count, oldest: passed.oldest) }
        return rows(of: lane, due)
      }
    )
  }

  private func isMainLane(_ lane: Int) -> Bool {
    lanes[lane].main == lane && lanes[lane].taskCount > 0
  }

  private func rows(of lane: Int, _ due: Due) -> [TaskCensus.Row] {
    TaskState.allCases.compactMap { state in
      let count = lanes[lane].stateCounts[state]
      guard count > 0 else { return nil }
      let isWaiting = state == .waiting
      return TaskCensus.Row(
        queue: lanes.queues[lanes[lane].queue].name,
        name: lanes[lane].name,
        state: state,
        count: count,
        due: isWaiting ? due.count : 0,
        retrying: isWaiting ? lanes[lane].retryingCount : 0,
        oldestDue: isWaiting ? due.oldest : nil
      )
    }
  }

  /// Returns the waiting tasks with the name of a main lane that are due, and are ready or held.
  private func listedTasks(of main: Int, at now: Date) -> Due {
    let (held, waking) = (lanes[main].held, lanes[main].waking)
    let bound = DateNode(date: now, node: .last)
    var due = Due()
    due.add(held.count(upTo: bound), oldest: held.first?.date)
    due.count -= waking.count(upTo: bound)
    for lane in [main] + lanes[main].variants {
      let ready = lanes[lane].ready
      var last: ReadyNode?
      while let first = ready.elements(after: last, limit: 1).first {
        let priority = first.priority
        let end = ReadyNode(priority: priority, date: now, node: .last)
        let count = ready.count(upTo: end) - (last.map(ready.count(upTo:)) ?? 0)
        // At most one of these tasks more than there are suspended ones comes before the oldest.
        let oldest = ready.elements(after: last, limit: waking.count + 1).first {
          $0.priority == priority && !waking.contains($0.byDate)
        }
        due.add(count, oldest: oldest?.date)
        last = ReadyNode(priority: priority, date: .infinity, node: .last)
      }
    }
    if let oldest = due.oldest, oldest > now { due.oldest = nil }
    return due
  }

  /// Returns the waiting tasks by main lane whose dates have come, and that no claim has made ready
  /// yet.
  private func passedTasks(of names: [Int], at now: Date) -> [Int: Due] {
    let bound = DateNode(date: now, node: .last)
    let count = waiting.count(upTo: bound)
    guard count > 0 else { return [:] }
    var passed: [Int: Due] = [:]
    if count <= waiting.count - count {
      forEachWaitingTask(after: nil) { lane, date in
        guard date <= now else { return false }
        passed[lane, default: Due()].count += 1
        return true
      }
    } else {
      for lane in names { passed[lane] = Due(count: delayedCount(of: lane)) }
      forEachWaitingTask(after: bound) { lane, _ in
        passed[lane]?.count -= 1
        return true
      }
    }
    var missing = Set(passed.filter { $0.value.count > 0 }.keys)
    forEachWaitingTask(after: nil) { lane, date in
      guard !missing.isEmpty, date <= now else { return false }
      if missing.remove(lane) != nil { passed[lane]?.oldest = date }
      return true
    }
    return passed
  }

  /// Returns the number of waiting tasks with the name of a main lane that are neither ready nor
  /// held.
  private func delayedCount(of main: Int) -> Int {
    let ready = ([main] + lanes[main].variants).reduce(0) { $0 + lanes[$1].ready.count }
    let listed = ready - lanes[main].waking.count + lanes[main].held.count
    return lanes[main].stateCounts[.waiting] - listed
  }

  /// Calls the body with the main lane and the date of each waiting task that is neither ready nor
  /// held, in the order of their dates, until it returns `false`.
  private func forEachWaitingTask(after node: DateNode?, _ body: (Int, Date) -> Bool) {
    var last = node
    while true {
      let page = waiting.elements(after: last, limit: 512)
      guard let end = page.last else { return }
      for node in page where entries[node.node.slot].record.state == .waiting {
        guard body(lanes[entries[node.node.slot].lane].main, node.date) else { return }
      }
      last = end
    }
  }
}

extension Date {
  /// A date after the dates of all tasks.
  fileprivate static var infinity: Date { Date(timeIntervalSinceReferenceDate: .infinity) }
}

/// A look-up that is performed in slices, so that its caller can release a lock between them.
///
/// Each slice visits at most `sliceSize` tasks. The result contains each task as it was when it was
/// visited.
struct TaskLookUp: Sendable {
  static let sliceSize = 512

  /// The tasks to visit.
  enum Source: Sendable {
    /// All tasks that come after the one with this ID.
    case table(after: TaskID?)
    /// All tasks with these unique keys.
    ///
    /// The keys before index `next` were looked up. The IDs of their tasks are collected in
    /// `found`; these tasks are visited after all keys were looked up.
    case keys([String], next: Int, found: Set<TaskID>)
    /// The tasks with these IDs, in order. The tasks before index `next` were visited.
    case ids([TaskID], next: Int)
  }

  let filter: TaskFilter
  let limit: Int
  /// Whether the tasks with greater IDs come first.
  let newestFirst: Bool
  /// The ID to continue after: only tasks that come after it are found.
  private let first: TaskID?
  private let keepsRecords: Bool
  var source: Source
  /// The tasks that were found, in order.
  private(set) var records: [TaskRecord] = []
  private(set) var count = 0
  var hasBegun = false
  var isOver: Bool

  /// Makes a look-up of a page of tasks.
  init(_ filter: TaskFilter, after id: TaskID?, limit: Int, newestFirst: Bool) {
    self.init(filter, after: id, limit: limit, newestFirst: newestFirst, keepsRecords: true)
  }

  /// Makes a look-up that counts tasks.
  init(counting filter: TaskFilter) {
    self.init(filter, after: nil, limit: .max, newestFirst: false, keepsRecords: false)
  }

  private init(
    _ filter: TaskFilter,
    after id: TaskID?,
    limit: Int,
    newestFirst: Bool,
    keepsRecords: Bool
  ) {
    self.filter = filter
    self.limit = limit
    self.newestFirst = newestFirst
    self.keepsRecords = keepsRecords
    first = id
    isOver = limit <= 0
    if let ids = filter.ids {
      source = .table(after: nil)
      restrict(to: ids)
    } else if let keys = filter.uniqueKeys {
      source = .keys(Array(keys), next: 0, found: [])
    } else {
      source = .table(after: id)
    }
  }

  /// Restricts the rest of the look-up to the tasks with these IDs.
  mutating func restrict(to ids: Set<TaskID>) {
    let rest = first.map { first in ids.filter { newestFirst ? $0 < first : $0 > first } } ?? ids
    source = .ids(newestFirst ? rest.sorted(by: >) : rest.sorted(), next: 0)
  }

  /// Adds a visited task to the result, if it matches the filter.
  ///
  /// The task's insertion must be committed.
  mutating func addIfMatching(_ record: TaskRecord) {
    guard !isOver, filter.matches(record) else { return }
    count += 1
    if keepsRecords { records.append(record) }
    isOver = count >= limit
  }
}
