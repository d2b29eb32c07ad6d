extension TaskTable {
  func record(of id: TaskID) -> TaskRecord? {
    guard let slot = slot(of: id), entries[slot].place != .staged else { return nil }
    return shownRecord(of: slot)
  }

  @inline(__always)
  func slot(of id: TaskID) -> Int? {
    entries.slot(of: id)
  }

  /// Returns the first tasks that match a filter and have greater IDs than `id`, in the order of
  /// their IDs.
  ///
  /// This takes O(k + log n) for the k tasks that are visited: the returned tasks, and the tasks
  /// between them that don't match the filter.
  func tasks(matching filter: TaskFilter, after id: TaskID?, limit: Int) -> [TaskRecord] {
    var lookUp = TaskLookUp(filter, after: id, limit: limit)
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
  /// This takes O(1).
  func knownCount(matching filter: TaskFilter) -> Int? {
    guard let states = filter.states,
      filter == TaskFilter(queue: filter.queue, states: states)
    else { return nil }
    return count(of: states, in: filter.queue)
  }

  /// Returns the number of tasks in any of these states; a `queue` of `nil` stands for all queues.
  private func count(of states: Set<TaskState>, in queue: String?) -> Int {
    guard let queue else { return stateCounts.total(of: states) }
    guard let number = lanes.number(ofQueue: queue) else { return 0 }
    if number > 0 { return lanes.queues[number].stateCounts.total(of: states) }
    // The tasks of the unnamed queue are not counted separately: they are all tasks except those of
    // the named queues.
    return lanes.queues.dropFirst().reduce(stateCounts.total(of: states)) {
      $0 - $1.stateCounts.total(of: states)
    }
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
      let slice = ids.elements(after: id, limit: TaskLookUp.sliceSize)
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

/// A look-up that is performed in slices, so that its caller can release a lock between them.
///
/// Each slice visits at most `sliceSize` tasks. The result contains each task as it was when it was
/// visited.
struct TaskLookUp: Sendable {
  static let sliceSize = 512

  /// The tasks to visit.
  enum Source: Sendable {
    /// All tasks whose IDs come after this ID.
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
  /// The ID to continue after: only tasks with greater IDs are found.
  private let first: TaskID?
  private let keepsRecords: Bool
  var source: Source
  /// The tasks that were found, in the order of their IDs.
  private(set) var records: [TaskRecord] = []
  private(set) var count = 0
  var hasBegun = false
  var isOver: Bool

  /// Makes a look-up of a page of tasks.
  init(_ filter: TaskFilter, after id: TaskID?, limit: Int) {
    self.init(filter, after: id, limit: limit, keepsRecords: true)
  }

  /// Makes a look-up that counts tasks.
  init(counting filter: TaskFilter) {
    self.init(filter, after: nil, limit: .max, keepsRecords: false)
  }

  private init(_ filter: TaskFilter, after id: TaskID?, limit: Int, keepsRecords: Bool) {
    self.filter = filter
    self.limit = limit
    self.keepsRecords = keepsRecords
    first = id
    isOver = limit <= 0
    if let ids = filter.ids {
      source = .ids(Self.sortedIDs(ids, after: id), next: 0)
    } else if let keys = filter.uniqueKeys {
      source = .keys(Array(keys), next: 0, found: [])
    } else {
      source = .table(after: id)
    }
  }

  private static func sortedIDs(_ ids: Set<TaskID>, after first: TaskID?) -> [TaskID] {
    (first.map { first in ids.filter { $0 > first } } ?? ids).sorted()
  }

  /// Restricts the rest of the look-up to the tasks with these IDs.
  mutating func restrict(to ids: Set<TaskID>) {
    source = .ids(Self.sortedIDs(ids, after: first), next: 0)
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
