/// The retained tasks of each state, in the order in which they ended.
struct EndedTasks: Sendable {
  private(set) var lines: [TaskState: OrderedLine<TaskTable.Node>] = [:]
  /// How many prunings are staged and not yet committed.
  ///
  /// While there are any, it is not known which ended tasks stay.
  var stagedPrunes = 0

  mutating func insert(_ node: TaskTable.Node, _ state: TaskState) {
    lines[state, default: OrderedLine()].insert(node)
  }

  /// - Returns: Whether the task was there.
  mutating func remove(_ node: TaskTable.Node, _ state: TaskState) -> Bool {
    lines[state]?.remove(node) ?? false
  }

  /// The task that ended first.
  func first(_ state: TaskState) -> TaskTable.Node? { lines[state]?.first }

  func nodes(_ state: TaskState) -> [TaskTable.Node] { lines[state]?.elements() ?? [] }
}
