/// Counts the leased tasks of the names with a limit on how many are performed at a time.
struct ConcurrencyLimits: Sendable {
  private var names: Set<String> = []
  /// The number of leased tasks of each name; a name without any has no entry.
  private var leasedCounts: [String: Int] = [:]
  /// The last result of `room(in:version:)`.
  ///
  /// It is stored because there may be many names, and little changes from one claim to the next.
  private var lastRoom: [String: Int] = [:]
  private var lastVersion: Int?
  /// The names whose number has changed since the last result.
  private var changedNames: Set<String> = []

  /// Returns how many more tasks of each name may be claimed within its limit.
  ///
  /// The version must differ from that of the last call if the limits do.
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

  /// Begins to limit a name, of which `leasedCount` tasks are leased already.
  mutating func add(_ name: String, leasedCount: Int) {
    names.insert(name)
    leasedCounts[name] = leasedCount > 0 ? leasedCount : nil
    changedNames.insert(name)
  }

  /// Counts tasks that were claimed.
  mutating func enter(_ tasks: [ClaimedTask]) {
    guard !names.isEmpty else { return }
    for task in tasks where names.contains(task.record.name) {
      leasedCounts[task.record.name, default: 0] += 1
      changedNames.insert(task.record.name)
    }
  }

  /// Notes that a task of this name is no longer leased.
  mutating func leave(_ name: String) {
    guard !leasedCounts.isEmpty, let count = leasedCounts[name] else { return }
    leasedCounts[name] = count > 1 ? count - 1 : nil
    changedNames.insert(name)
  }
}
