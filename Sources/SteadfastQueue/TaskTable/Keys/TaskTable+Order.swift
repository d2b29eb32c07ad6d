/// Order keys: tasks with the same order key are performed one at a time, and a claim finds only
/// the first of them, the head.
extension TaskTable {
  /// Sets a new task's position among the tasks with its order key.
  ///
  /// `number` is the position that the task had in another table; `nil` means the last position.
  mutating func setOrderNumber(of slot: Int, to number: UInt64? = nil) {
    guard entries[slot].record.orderKey != nil else { return }
    entries[slot].record.setOrderNumber(number ?? nextNumber())
    if let number { skipNumbers(through: number) }
  }

  /// Adds a task to the list of the tasks with its order key.
  mutating func joinOrder(_ slot: Int) {
    guard !entries[slot].isOrdered, let key = orderKey(of: slot) else { return }
    entries[slot].isOrdered = true
    if order.add(orderNode(of: slot), to: key) { return }
    entries[slot].isBehindHead = true
    settleHead(of: key)
  }

  /// Removes a task from the list of the tasks with its order key; if the task was the head, the
  /// next one becomes the head.
  mutating func leaveOrder(_ slot: Int) {
    guard entries[slot].isOrdered, let key = orderKey(of: slot) else { return }
    let node = orderNode(of: slot)
    entries[slot].isOrdered = false
    entries[slot].isBehindHead = false
    if let next = order.remove(node, from: key) { promoteToHead(next.slot) }
  }

  /// Makes the first task with an order key the head, unless the current head is running.
  ///
  /// A restarted task returns to its previous position, so it may be the first without being the
  /// head.
  mutating func settleHead(of key: OrderKeys.Key) {
    // Usually, all heads are known to be the first tasks, so the key is not looked up.
    guard !order.areSettled, let head = order.head(of: key),
      entries[head.slot].record.state != .running,
      let first = order.makeFirstHead(of: key)
    else { return }
    demoteHead(head.slot)
    promoteToHead(first.slot)
  }

  /// Returns whether a task may have started before, although it waits for other tasks now.
  ///
  /// That is possible if the other tasks had ended, and were restarted after the task had started.
  /// Tasks that it depends on can have been restarted only if the task was restored from a
  /// compacted file, as `isRestored` says.
  func mayHaveStarted(_ slot: Int, isRestored: Bool) -> Bool {
    let waits = entries[slot].waitsForOthers
    guard entries[slot].record.keyRole != .successor, isRestored || !waits else { return false }
    guard entries[slot].isBehindHead else { return waits }
    guard let head = orderKey(of: slot).flatMap(order.head) else { return false }
    return entries[head.slot].record.state != .running
  }

  /// Makes a running task the head.
  mutating func makeHead(_ slot: Int) {
    guard entries[slot].isBehindHead, let key = orderKey(of: slot),
      let head = order.head(of: key)
    else { return }
    order.makeHead(orderNode(of: slot), of: key)
    entries[slot].isBehindHead = false
    demoteHead(head.slot)
  }

  private mutating func demoteHead(_ slot: Int) {
    entries[slot].isBehindHead = true
    if entries[slot].isInList, entries[slot].record.state.isClaimable { putInList(slot) }
  }

  private mutating func promoteToHead(_ slot: Int) {
    entries[slot].isBehindHead = false
    // A reserved task returns to its list when its staged change is rolled back.
    if entries[slot].place == .held, !entries[slot].isReserved { putInList(slot) }
  }

  func orderKey(of slot: Int) -> OrderKeys.Key? {
    guard let key = entries[slot].record.orderKey else { return nil }
    return OrderKeys.Key(queue: queueNumber(of: slot), text: ExactText(key))
  }

  private func orderNode(of slot: Int) -> Node {
    Node(slot: slot, position: entries[slot].record.orderNumber)
  }
}

/// The unfinished tasks with each order key, in the order of their insertion.
///
/// One task of each key is the head, which may be performed. The head is the first task, or a task
/// that was already running when an earlier task was restarted. Ended tasks that hold up others are
/// included.
struct OrderKeys: Sendable {
  /// The tasks with one key, sorted by their order numbers.
  private struct Tasks: Sendable {
    var head: TaskTable.Node
    var others = SortedList<TaskTable.Node>()
  }

  /// An order key in one queue; the queue is identified by its number.
  struct Key: Hashable, Sendable {
    let queue: Int
    let text: ExactText
  }

  /// For each queue, the tasks with each order key.
  private var queues: [[ExactText: Tasks]] = []
  /// The keys whose head may not be the first task.
  private var unsettled: Set<Key> = []

  /// Whether every head is known to be the first task with its key.
  var areSettled: Bool { unsettled.isEmpty }

  private subscript(key: Key) -> Tasks? {
    _read { yield key.queue < queues.count ? queues[key.queue][key.text] : nil }
    _modify {
      while queues.count <= key.queue { queues.append([:]) }
      yield &queues[key.queue][key.text]
    }
  }

  /// The order keys that any task has.
  var keys: [Key] {
    queues.indices.flatMap { queue in queues[queue].keys.map { Key(queue: queue, text: $0) } }
  }

  /// Returns the head: the only task with the key that may be performed.
  func head(of key: Key) -> TaskTable.Node? { self[key]?.head }

  /// Returns the tasks behind the head of a key, in order.
  func others(of key: Key) -> [TaskTable.Node] { self[key]?.others.elements() ?? [] }

  /// Adds a task with a key.
  ///
  /// - Returns: Whether the task is the head, because no other task has the key.
  mutating func add(_ node: TaskTable.Node, to key: Key) -> Bool {
    let head = Self.add(node, to: &self[key])
    if node < head { unsettled.insert(key) }
    return head == node
  }

  private static func add(_ node: TaskTable.Node, to tasks: inout Tasks?) -> TaskTable.Node {
    guard let head = tasks?.head else {
      tasks = Tasks(head: node)
      return node
    }
    tasks?.others.insert(node)
    return head
  }

  /// Removes a task with a key.
  ///
  /// - Returns: The new head, if the removed task was the head and other tasks have the key.
  mutating func remove(_ node: TaskTable.Node, from key: Key) -> TaskTable.Node? {
    if !unsettled.isEmpty, head(of: key) == node { unsettled.remove(key) }
    return Self.remove(node, from: &self[key])
  }

  private static func remove(_ node: TaskTable.Node, from tasks: inout Tasks?) -> TaskTable.Node? {
    guard tasks?.head == node else {
      _ = tasks?.others.remove(node)
      return nil
    }
    guard let next = tasks?.others.popFirst() else {
      tasks = nil
      return nil
    }
    tasks?.head = next
    return next
  }

  /// Makes the first task of a key the head.
  ///
  /// - Returns: The new head; `nil` if the first task was the head before.
  mutating func makeFirstHead(of key: Key) -> TaskTable.Node? {
    unsettled.remove(key)
    guard let head = self[key]?.head, let first = self[key]?.others.first, first < head else {
      return nil
    }
    makeHead(first, of: key)
    return first
  }

  /// Makes a task the head of its key, if another task is the head.
  mutating func makeHead(_ node: TaskTable.Node, of key: Key) {
    guard let head = self[key]?.head, self[key]?.others.remove(node) == true else { return }
    self[key]?.others.insert(head)
    self[key]?.head = node
    if self[key]?.others.first.map({ $0 < node }) ?? false { unsettled.insert(key) }
  }
}
