/// The tasks with each order key that have not ended, in the order of their insertion.
///
/// Of each key, one task has the turn: it may be performed. It is the first one, or the one that
/// was being performed when an earlier one was restarted. Tasks that have ended and hold their turn
/// count as well.
struct OrderKeys: Sendable {
  /// The tasks of one key; the position of a node is the task's number in the order.
  private struct Line: Sendable {
    var turn: TaskTable.Node
    var others = OrderedLine<TaskTable.Node>()
  }

  private var lines: [String: Line] = [:]

  /// The keys of the tasks.
  var keys: some Collection<String> { lines.keys }

  /// The task that has the turn.
  func turn(of key: String) -> TaskTable.Node? { lines[key]?.turn }

  /// The tasks that do not have the turn, in order.
  func others(of key: String) -> [TaskTable.Node] { lines[key]?.others.elements() ?? [] }

  /// Adds a task.
  ///
  /// - Returns: Whether it has the turn, because it is the only one.
  mutating func add(_ node: TaskTable.Node, to key: String) -> Bool {
    if lines[key]?.others.insert(node) != nil { return false }
    lines[key] = Line(turn: node)
    return true
  }

  /// Removes a task.
  ///
  /// - Returns: The task that has the turn now, if the removed one had it.
  mutating func remove(_ node: TaskTable.Node, from key: String) -> TaskTable.Node? {
    guard lines[key]?.turn == node else {
      _ = lines[key]?.others.remove(node)
      return nil
    }
    guard let next = lines[key]?.others.popFirst() else {
      lines[key] = nil
      return nil
    }
    lines[key]?.turn = next
    return next
  }

  /// Gives the turn to the first task, if another one has it.
  ///
  /// - Returns: The task that has the turn now, if it did not have it before.
  mutating func giveTurnToFirst(of key: String) -> TaskTable.Node? {
    guard let turn = lines[key]?.turn, let first = lines[key]?.others.first, first < turn else {
      return nil
    }
    giveTurn(to: first, of: key)
    return first
  }

  /// Gives the turn to a task that does not have it.
  mutating func giveTurn(to node: TaskTable.Node, of key: String) {
    guard let turn = lines[key]?.turn, lines[key]?.others.remove(node) == true else { return }
    lines[key]?.others.insert(turn)
    lines[key]?.turn = node
  }
}
