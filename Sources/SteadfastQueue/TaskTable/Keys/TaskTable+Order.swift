/// Order keys: of the tasks with one key, only the one that has the turn is handed out.
extension TaskTable {
  /// Gives a new task its place among those with its order key.
  ///
  /// `number` is the place that it had in another table; `nil` stands for the last place.
  mutating func setOrderNumber(of slot: Int, to number: UInt64? = nil) {
    guard entries[slot].record.orderKey != nil else { return }
    entries[slot].record.setOrderNumber(number ?? nextNumber())
    if let number { noteNumber(number) }
  }

  /// Adds a task that waits, or holds its turn, to those with its order key.
  mutating func joinOrder(_ slot: Int) {
    guard !entries[slot].isOrdered, let key = entries[slot].record.orderKey else { return }
    entries[slot].isOrdered = true
    if order.add(orderNode(of: slot), to: key) { return }
    entries[slot].lacksTurn = true
    settleTurn(of: key)
  }

  /// Removes a task from those with its order key, and gives its turn to the next one.
  mutating func leaveOrder(_ slot: Int) {
    guard entries[slot].isOrdered, let key = entries[slot].record.orderKey else { return }
    let node = orderNode(of: slot)
    entries[slot].isOrdered = false
    entries[slot].lacksTurn = false
    if let next = order.remove(node, from: key) { receiveTurn(next.slot) }
  }

  /// Gives the turn to the first task with a key, unless another one is running.
  ///
  /// The first one may have come back: a task that is restarted has the place that it had.
  mutating func settleTurn(of key: String) {
    guard let turn = order.turn(of: key), entries[turn.slot].record.state != .running,
      let first = order.giveTurnToFirst(of: key)
    else { return }
    loseTurn(turn.slot)
    receiveTurn(first.slot)
  }

  /// Returns whether a task that is held up by another one with its order key may have been begun.
  ///
  /// It may if no other one runs: the one that comes first may have been restarted since.
  func mayHaveBegun(_ slot: Int) -> Bool {
    guard entries[slot].lacksTurn, entries[slot].record.keyRole != .successor,
      let turn = entries[slot].record.orderKey.flatMap(order.turn)
    else { return false }
    return entries[turn.slot].record.state != .running
  }

  /// Gives the turn to a task that runs.
  mutating func takeTurn(_ slot: Int) {
    guard entries[slot].lacksTurn, let key = entries[slot].record.orderKey,
      let turn = order.turn(of: key)
    else { return }
    order.giveTurn(to: orderNode(of: slot), of: key)
    entries[slot].lacksTurn = false
    loseTurn(turn.slot)
  }

  private mutating func loseTurn(_ slot: Int) {
    entries[slot].lacksTurn = true
    if entries[slot].isInLine, entries[slot].record.state == .waiting { lineUp(slot) }
  }

  private mutating func receiveTurn(_ slot: Int) {
    entries[slot].lacksTurn = false
    // A task that a staged change holds is lined up if that change is rolled back.
    if entries[slot].place == .held, !entries[slot].isReserved { lineUp(slot) }
  }

  private func orderNode(of slot: Int) -> Node {
    Node(slot: slot, position: entries[slot].record.orderNumber)
  }
}
