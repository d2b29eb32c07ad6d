/// The tasks with each order key that have not ended, in the order of their insertion.
///
/// Of each key, one task is the head: it may be performed. It is the first one, or the one that
/// runs since before an earlier one was restarted. Tasks that have ended and hold up others count,
/// too.
struct OrderKeys: Sendable {
  /// The tasks of one key; the position of a node is the task's number in the order.
  private struct Line: Sendable {
    var head: TaskTable.Node
    var others = OrderedLine<TaskTable.Node>()
  }

  private var lines: [ExactText: Line] = [:]

  /// The keys of the tasks.
  var keys: some Collection<ExactText> { lines.keys }

  /// The task that may be performed.
  func head(of key: ExactText) -> TaskTable.Node? { lines[key]?.head }

  /// The tasks behind the head, in order.
  func others(of key: ExactText) -> [TaskTable.Node] { lines[key]?.others.elements() ?? [] }

  /// Adds a task.
  ///
  /// - Returns: Whether it is the head, because it is the only one.
  mutating func add(_ node: TaskTable.Node, to key: ExactText) -> Bool {
    if lines[key]?.others.insert(node) != nil { return false }
    lines[key] = Line(head: node)
    return true
  }

  /// Removes a task.
  ///
  /// - Returns: The new head, if the removed task was the head.
  mutating func remove(_ node: TaskTable.Node, from key: ExactText) -> TaskTable.Node? {
    guard lines[key]?.head == node else {
      _ = lines[key]?.others.remove(node)
      return nil
    }
    guard let next = lines[key]?.others.popFirst() else {
      lines[key] = nil
      return nil
    }
    lines[key]?.head = next
    return next
  }

  /// Makes the first task the head.
  ///
  /// - Returns: The new head, if that was another task before.
  mutating func makeFirstHead(of key: ExactText) -> TaskTable.Node? {
    guard let head = lines[key]?.head, let first = lines[key]?.others.first, first < head else {
      return nil
    }
    makeHead(first, of: key)
    return first
  }

  /// Makes a task the head that is not.
  mutating func makeHead(_ node: TaskTable.Node, of key: ExactText) {
    guard let head = lines[key]?.head, lines[key]?.others.remove(node) == true else { return }
    lines[key]?.others.insert(head)
    lines[key]?.head = node
  }
}
