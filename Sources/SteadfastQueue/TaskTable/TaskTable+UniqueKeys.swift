/// The tasks that have each unique key.
///
/// At most one task holds a key. Other tasks have it without holding it: it was taken from them
/// while they were performed.
extension TaskTable {
  func slots(bearing keys: some Sequence<String>) -> [Int] {
    keys.flatMap { key in
      (keyHolders[key].map { [$0] } ?? []) + (keyLosers[key].map(Array.init) ?? [])
    }
  }

  /// Notes that a later task takes the key of this task.
  mutating func loseKey(of slot: Int) {
    guard let key = entries[slot].record.uniqueKey else { return }
    if keyHolders[key] == slot { keyHolders[key] = nil }
    keyLosers[key, default: []].insert(slot)
  }

  /// Gives this task its key again, because the task that was to take it is not stored.
  mutating func regainKey(of slot: Int) {
    guard let key = entries[slot].record.uniqueKey else { return }
    keyHolders[key] = slot
    forgetLoser(slot, of: key)
  }

  /// Removes a task that leaves the table from the tasks of its key.
  mutating func leaveKey(of slot: Int) {
    guard let key = entries[slot].record.uniqueKey else { return }
    if keyHolders[key] == slot { keyHolders[key] = nil } else { forgetLoser(slot, of: key) }
  }

  private mutating func forgetLoser(_ slot: Int, of key: String) {
    keyLosers[key]?.remove(slot)
    if keyLosers[key]?.isEmpty == true { keyLosers[key] = nil }
  }
}
