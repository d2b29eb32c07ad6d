/// The names whose tasks may be performed only so many at a time, and how many are leased: a value.
struct LimitedNames: Sendable {
  private var names: Set<String> = []
  /// Of each of the names, unless it is none.
  private var leasedCounts: [String: Int] = [:]
  /// The room that was asked for last, and of which limits: there may be many names, and little
  /// changes from one claim to the next.
  private var lastRoom: [String: Int] = [:]
  private var lastVersion: Int?
  /// The names whose number has changed since.
  private var changedNames: Set<String> = []

  /// How many tasks of each name may be claimed, of those that may be performed at a time.
  ///
  /// The version is another one if the limits are not those of the last call.
  mutating func room(in limits: [String: Int], version: Int) -> [String: Int] {
    guard !names.isEmpty else { return limits }
    if lastVersion != version {
      lastVersion = version
      lastRoom = limits
      changedNames = Set(leasedCounts.keys)
    }
    for name in changedNames {
      lastRoom[name] = limits[name, default: 0] - leasedCounts[name, default: 0]
    }
    changedNames.removeAll(keepingCapacity: true)
    return lastRoom
  }

  /// A name is limited from now on, of which so many tasks are leased already.
  mutating func add(_ name: String, leasedCount: Int) {
    names.insert(name)
    leasedCounts[name] = leasedCount > 0 ? leasedCount : nil
    changedNames.insert(name)
  }

  /// Tasks were claimed.
  mutating func enter(_ tasks: [ClaimedTask]) {
    guard !names.isEmpty else { return }
    for task in tasks where names.contains(task.record.name) {
      leasedCounts[task.record.name, default: 0] += 1
      changedNames.insert(task.record.name)
    }
  }

  /// A task of this name is leased no more.
  mutating func leave(_ name: String) {
    guard !leasedCounts.isEmpty, let count = leasedCounts[name] else { return }
    leasedCounts[name] = count > 1 ? count - 1 : nil
    changedNames.insert(name)
  }
}
