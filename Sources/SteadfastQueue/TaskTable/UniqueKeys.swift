/// The slots of the tasks that have each unique key.
///
/// At most one task holds a key. Other tasks have it without holding it: it was taken from them
/// while they were performed.
struct UniqueKeys: Sendable {
  private(set) var holders: [String: Int] = [:]
  /// The tasks whose key a later task has taken, or is about to take.
  private(set) var displaced: [String: Set<Int>] = [:]

  func holder(of key: String) -> Int? { holders[key] }

  /// Returns whether no task holds a key; `nil`, the key of many tasks, is always free.
  func isFree(_ key: String?) -> Bool { key.map { holders[$0] == nil } ?? true }

  /// The slots of all tasks that have one of these keys.
  func slots(with keys: some Sequence<String>) -> [Int] {
    keys.flatMap { key in
      (holders[key].map { [$0] } ?? []) + (displaced[key].map(Array.init) ?? [])
    }
  }

  /// Gives a task its key, if it has one.
  mutating func give(_ key: String?, to slot: Int) {
    guard let key else { return }
    holders[key] = slot
  }

  /// Notes that a later task takes the key of this task.
  mutating func take(_ key: String?, from slot: Int) {
    guard let key else { return }
    if holders[key] == slot { holders[key] = nil }
    displaced[key, default: []].insert(slot)
  }

  /// Gives this task its key again, because the task that was to take it is not stored.
  mutating func giveBack(_ key: String?, to slot: Int) {
    guard let key else { return }
    holders[key] = slot
    forget(slot, of: key)
  }

  /// Removes a task that leaves the table from the tasks of its key.
  mutating func remove(_ slot: Int, of key: String?) {
    guard let key else { return }
    if holders[key] == slot { holders[key] = nil } else { forget(slot, of: key) }
  }

  private mutating func forget(_ slot: Int, of key: String) {
    displaced[key]?.remove(slot)
    if displaced[key]?.isEmpty == true { displaced[key] = nil }
  }
}
