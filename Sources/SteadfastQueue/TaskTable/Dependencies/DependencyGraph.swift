/// Which tasks wait for which others, and which tasks a staged change to another task will change.
///
/// A batch's follower, which waits for all tasks of the batch, is identified by its ID, because it
/// may be added after them.
struct DependencyGraph: Sendable {
  /// Which tasks each task depends on.
  var edges = DependencyEdges()
  /// The progress of each batch whose follower is not in the table, by the ID of the follower.
  private var progress: [TaskID: BatchProgress] = [:]
  /// For each task, the number of staged changes to other tasks that will change it.
  private var bindings: [TaskID: Int] = [:]
  /// For each task, the number of staged changes to other tasks that cancel it, or may cancel it.
  private var cancellations: [TaskID: Int] = [:]
  /// For each task with a staged change, the other tasks that the change reserves.
  private var staged: [TaskID: Binding] = [:]

  /// The other tasks that a staged change to a task reserves.
  struct Binding: Sendable {
    /// The reserved tasks, which no claim and no other change may affect.
    var tasks: [TaskID] = []
    /// Whether the commit of the change may cancel the reserved tasks.
    var cancels = false
    /// The tasks that the change does not restart along with its task, because other tasks have
    /// their unique keys.
    var excluded: [TaskID] = []
  }

  /// Whether no task in the table has ever waited for another task.
  var isEmpty: Bool { edges.isEmpty && progress.isEmpty }

  // MARK: Batches without a follower

  /// Changes the progress of a batch whose follower, the task with this ID, is not in the table.
  ///
  /// The progress is removed when the last task of the batch ends.
  mutating func changeProgress(ofBatch id: TaskID, _ change: (inout BatchProgress) -> Void) {
    let before = progress[id] ?? BatchProgress()
    var batch = before
    change(&batch)
    progress[id] = batch.unfinished > 0 || batch.total > before.total ? batch : nil
  }

  /// Removes and returns the progress of a batch whose follower is added to the table.
  mutating func takeProgress(ofBatch id: TaskID) -> BatchProgress? {
    progress.isEmpty ? nil : progress.removeValue(forKey: id)
  }

  // MARK: Staged changes

  /// Returns whether a staged change to another task will change this task.
  func isPinned(_ id: TaskID) -> Bool { bindings[id] != nil }

  /// Returns whether a staged change to another task will cancel this task, or may cancel it.
  func isBeingCancelled(_ id: TaskID) -> Bool { cancellations[id] != nil }

  /// Records the tasks that the staged change to a task reserves.
  mutating func recordBinding(_ binding: Binding, for id: TaskID) {
    for other in binding.tasks {
      bindings[other, default: 0] += 1
      if binding.cancels { cancellations[other, default: 0] += 1 }
    }
    staged[id] = binding
  }

  /// Releases and returns the tasks that the staged change to a task reserves.
  mutating func removeBinding(for id: TaskID) -> Binding {
    guard let binding = staged.removeValue(forKey: id) else { return Binding() }
    for other in binding.tasks {
      Self.subtractOne(from: &bindings, for: other)
      if binding.cancels { Self.subtractOne(from: &cancellations, for: other) }
    }
    return binding
  }

  private static func subtractOne(from counts: inout [TaskID: Int], for id: TaskID) {
    let count = (counts[id] ?? 1) - 1
    counts[id] = count == 0 ? nil : count
  }

  /// Returns the tasks that the staged restart of a task does not restart along with it, because
  /// other tasks have their unique keys.
  func tasksExcluded(fromRestartOf id: TaskID) -> [TaskID] { staged[id]?.excluded ?? [] }
}

/// Which tasks depend on which others, and how many dependencies of each task have not ended.
///
/// An edge leads from a dependent task to a task that it *names* as a dependency. The dependent
/// task is identified by its slot. The named task is identified by its ID, because it need not be
/// in the table: it may have ended and been removed, or its line may come later in a compacted
/// file.
///
/// Adding an edge takes one look-up of the named task's ID. A task that waits for one other task
/// takes 1.4 times the processor time of a task that waits for none. With a set of IDs for each
/// named task, it took 1.65 times as much.
struct DependencyEdges: Sendable {
  /// The dependency of one task on another.
  private struct Edge: Sendable {
    let named: TaskID
    let dependent: Int32
    /// The previous and the next edge to the same named task; `none` at the ends.
    var older, newer: Int32
    /// The previous edge of the same dependent task; `none` for the task's first edge.
    let sibling: Int32
  }

  /// The dependencies of the task in a slot.
  private struct Dependent: Sendable {
    var lastEdge = DependencyEdges.none
    var unfinishedCount: Int32 = 0
  }

  private static let none: Int32 = -1

  private var edges = Slab<Edge>(
    filler: Edge(
      named: TaskID(high: 0, low: 0),
      dependent: none,
      older: none,
      newer: none,
      sibling: none
    )
  )
  /// The newest edge to each named task.
  private var newest: [TaskID: Int32] = [:]
  /// The dependencies of each task by slot, up to the last slot that has ever had any.
  private var dependents: [Dependent] = []

  /// Whether no task in the table depends on another.
  var isEmpty: Bool { newest.isEmpty }

  // MARK: Edges

  /// Records that the task in a slot names another task.
  mutating func addEdge(from slot: Int, to named: TaskID) {
    ensureCapacity(for: slot)
    let edge = Int32(
      edges.insert(
        Edge(
          named: named,
          dependent: Int32(slot),
          older: newest[named] ?? Self.none,
          newer: Self.none,
          sibling: dependents[slot].lastEdge
        )
      )
    )
    if let older = newest.updateValue(edge, forKey: named) { edges[Int(older)].newer = edge }
    dependents[slot].lastEdge = edge
  }

  /// Removes the dependencies of the task in a slot.
  mutating func removeEdges(from slot: Int) {
    guard slot < dependents.count else { return }
    var next = dependents[slot].lastEdge
    dependents[slot] = Dependent()
    while next != Self.none {
      let edge = edges[Int(next)]
      unlink(edge)
      edges.remove(Int(next))
      next = edge.sibling
    }
  }

  private mutating func unlink(_ edge: Edge) {
    if edge.older != Self.none { edges[Int(edge.older)].newer = edge.newer }
    if edge.newer != Self.none {
      edges[Int(edge.newer)].older = edge.older
    } else {
      newest[edge.named] = edge.older == Self.none ? nil : edge.older
    }
  }

  /// Returns the slots of the tasks that depend on a task, in the order of insertion.
  func slots(naming id: TaskID) -> [Int] {
    var slots: [Int] = []
    var next = newest.isEmpty ? Self.none : newest[id] ?? Self.none
    while next != Self.none {
      slots.append(Int(edges[Int(next)].dependent))
      next = edges[Int(next)].older
    }
    slots.reverse()
    return slots
  }

  /// Returns whether any task in the table depends on a task.
  func hasDependents(of id: TaskID) -> Bool { newest[id] != nil }

  // MARK: Unfinished dependencies

  /// Returns how many dependencies of the task in a slot have not ended.
  func unfinishedCount(of slot: Int) -> Int {
    slot < dependents.count ? Int(dependents[slot].unfinishedCount) : 0
  }

  mutating func changeUnfinishedCount(of slot: Int, by difference: Int) {
    ensureCapacity(for: slot)
    dependents[slot].unfinishedCount = max(0, dependents[slot].unfinishedCount + Int32(difference))
  }

  mutating func resetUnfinishedCount(of slot: Int) {
    if slot < dependents.count { dependents[slot].unfinishedCount = 0 }
  }

  private mutating func ensureCapacity(for slot: Int) {
    guard slot >= dependents.count else { return }
    dependents.append(
      contentsOf: repeatElement(Dependent(), count: slot + 1 - dependents.count)
    )
  }
}
