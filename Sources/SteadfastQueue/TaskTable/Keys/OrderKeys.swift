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
  /// The keys whose head may not be the first task.
  private var unsettled: Set<Key> = []

  /// Whether the head of each key is its first task.
  var areSettled: Bool { unsettled.isEmpty }

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
    let head = Self.add(node, to: &self[key])
    if node < head { unsettled.insert(key) }
    return head == node
  }

  /// - Returns: The head.
  private static func add(_ node: TaskTable.Node, to line: inout Line?) -> TaskTable.Node {
    guard let head = line?.head else {
      line = Line(head: node)
      return node
    }
    line?.others.insert(node)
    return head
  }

  /// Removes a task.
  ///
  /// - Returns: The new head, if the removed task was the head.
  mutating func remove(_ node: TaskTable.Node, from key: Key) -> TaskTable.Node? {
    if !unsettled.isEmpty, head(of: key) == node { unsettled.remove(key) }
    return Self.remove(node, from: &self[key])
  }

  private static func remove(_ node: TaskTable.Node, from line: inout Line?) -> TaskTable.Node? {
    guard line?.head == node else {
      _ = line?.others.remove(node)
      return nil
    }
    guard let next = line?.others.popFirst() else {
      line = nil
      return nil
    }
    line?.head = next
    return next
  }

  /// Makes the first task the head.
  ///
  /// - Returns: The new head, if that was another task before.
  mutating func makeFirstHead(of key: Key) -> TaskTable.Node? {
    unsettled.remove(key)
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
    if self[key]?.others.first.map({ $0 < node }) ?? false { unsettled.insert(key) }
  }
}
