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

  /// A key of the tasks in one queue, which is given by its number.
  struct Key: Hashable, Sendable {
    let queue: Int
    let text: ExactText
  }

  /// The lines of each queue.
  private var queues: [[ExactText: Line]] = []

  private subscript(key: Key) -> Line? {
    _read { yield key.queue < queues.count ? queues[key.queue][key.text] : nil }
    _modify {
      while queues.count <= key.queue { queues.append([:]) }
      yield &queues[key.queue][key.text]
    }
  }

  /// The keys of the tasks.
  var keys: [Key] {
    queues.indices.flatMap { queue in queues[queue].keys.map { Key(queue: queue, text: $0) } }
  }

  /// The task that may be performed.
  func head(of key: Key) -> TaskTable.Node? { self[key]?.head }

  /// The tasks behind the head, in order.
  func others(of key: Key) -> [TaskTable.Node] { self[key]?.others.elements() ?? [] }

  /// Adds a task.
  ///
  /// - Returns: Whether it is the head, because it is the only one.
  mutating func add(_ node: TaskTable.Node, to key: Key) -> Bool {
    if self[key]?.others.insert(node) != nil { return false }
    self[key] = Line(head: node)
    return true
  }

  /// Removes a task.
  ///
  /// - Returns: The new head, if the removed task was the head.
  mutating func remove(_ node: TaskTable.Node, from key: Key) -> TaskTable.Node? {
    guard self[key]?.head == node else {
      _ = self[key]?.others.remove(node)
      return nil
    }
    guard let next = self[key]?.others.popFirst() else {
      self[key] = nil
      return nil
    }
    self[key]?.head = next
    return next
  }

  /// Makes the first task the head.
  ///
  /// - Returns: The new head, if that was another task before.
  mutating func makeFirstHead(of key: Key) -> TaskTable.Node? {
    guard let head = self[key]?.head, let first = self[key]?.others.first, first < head else {
      return nil
    }
    makeHead(first, of: key)
    return first
  }

  /// Makes a task the head that is not.
  mutating func makeHead(_ node: TaskTable.Node, of key: Key) {
    guard let head = self[key]?.head, self[key]?.others.remove(node) == true else { return }
    self[key]?.others.insert(head)
    self[key]?.head = node
  }
}
