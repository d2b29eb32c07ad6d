/// Who bears which unique key: at most one task holds it, and those that it was taken from while they
/// were performed bear it without holding it.
extension TaskTable {
  func slots(bearing keys: some Sequence<String>) -> [Int] {
    keys.flatMap { key in
      (keyHolders[key].map { [$0] } ?? []) + (keyLosers[key].map(Array.init) ?? [])
    }
  }

  /// A later task takes the key of this one.
  mutating func loseKey(of slot: Int) {
    guard let key = entries[slot].record.uniqueKey else { return }
    if keyHolders[key] == slot { keyHolders[key] = nil }
    keyLosers[key, default: []].insert(slot)
  }

  /// The task that was to take the key of this one is not kept.
  mutating func regainKey(of slot: Int) {
    guard let key = entries[slot].record.uniqueKey else { return }
    keyHolders[key] = slot
    forgetLoser(slot, of: key)
  }

  /// A task goes.
  mutating func leaveKey(of slot: Int) {
    guard let key = entries[slot].record.uniqueKey else { return }
    if keyHolders[key] == slot { keyHolders[key] = nil } else { forgetLoser(slot, of: key) }
  }

  private mutating func forgetLoser(_ slot: Int, of key: String) {
    keyLosers[key]?.remove(slot)
    if keyLosers[key]?.isEmpty == true { keyLosers[key] = nil }
  }
}
