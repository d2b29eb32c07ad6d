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
