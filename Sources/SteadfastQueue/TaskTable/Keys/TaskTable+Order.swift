/// Order keys: of the tasks with one key, only the head is handed out.
extension TaskTable {
  /// Gives a new task its place among those with its order key.
  ///
  /// `number` is the place that it had in another table; `nil` stands for the last place.
  mutating func setOrderNumber(of slot: Int, to number: UInt64? = nil) {
    guard entries[slot].record.orderKey != nil else { return }
    entries[slot].record.setOrderNumber(number ?? nextNumber())
    if let number { noteNumber(number) }
  }

  /// Adds a task that has not ended, or holds up others, to those with its order key.
  mutating func joinOrder(_ slot: Int) {
    guard !entries[slot].isOrdered, let key = orderKey(of: slot) else { return }
    entries[slot].isOrdered = true
    if order.add(orderNode(of: slot), to: key) { return }
    entries[slot].isBehindHead = true
    settleHead(of: key)
  }

  /// Removes a task from those with its order key; if it was the head, the next one is.
  mutating func leaveOrder(_ slot: Int) {
    guard entries[slot].isOrdered, let key = orderKey(of: slot) else { return }
    let node = orderNode(of: slot)
    entries[slot].isOrdered = false
    entries[slot].isBehindHead = false
    if let next = order.remove(node, from: key) { becomeHead(next.slot) }
  }

  /// Makes the first task with a key the head, unless another one is running.
  ///
  /// The first one may have come back: a task that is restarted has the place that it had.
  mutating func settleHead(of key: OrderKeys.Key) {
    // Most of the time this is known without a look at the key.
    guard !order.areSettled, let head = order.head(of: key),
      entries[head.slot].record.state != .running,
      let first = order.makeFirstHead(of: key)
    else { return }
    stepBack(head.slot)
    becomeHead(first.slot)
  }

  /// Returns whether a task that is held up by another one may have been begun.
  ///
  /// It may if no other one with its order key runs: the one that comes first may have been
  /// restarted since. So may those that it waits for, but only if it has begun before: `isRestored`
  /// says so.
  func mayHaveBegun(_ slot: Int, isRestored: Bool) -> Bool {
    let waits = entries[slot].waitsForOthers
    guard entries[slot].record.keyRole != .successor, isRestored || !waits else { return false }
    guard entries[slot].isBehindHead else { return waits }
    guard let head = orderKey(of: slot).flatMap(order.head) else { return false }
    return entries[head.slot].record.state != .running
  }

  /// Makes a task the head that runs.
  mutating func makeHead(_ slot: Int) {
    guard entries[slot].isBehindHead, let key = orderKey(of: slot),
      let head = order.head(of: key)
    else { return }
    order.makeHead(orderNode(of: slot), of: key)
    entries[slot].isBehindHead = false
    stepBack(head.slot)
  }

  private mutating func stepBack(_ slot: Int) {
    entries[slot].isBehindHead = true
    if entries[slot].isInLine, entries[slot].record.state.isClaimable { lineUp(slot) }
  }

  private mutating func becomeHead(_ slot: Int) {
    entries[slot].isBehindHead = false
    // A task that a staged change holds is lined up if that change is rolled back.
    if entries[slot].place == .held, !entries[slot].isReserved { lineUp(slot) }
  }

  func orderKey(of slot: Int) -> OrderKeys.Key? {
    guard let key = entries[slot].record.orderKey else { return nil }
    return OrderKeys.Key(queue: queueNumber(of: slot), text: ExactText(key))
  }

  private func orderNode(of slot: Int) -> Node {
    Node(slot: slot, position: entries[slot].record.orderNumber)
  }
}

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
