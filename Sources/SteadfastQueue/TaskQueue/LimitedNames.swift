/// The names whose tasks may be performed only so many at a time, and how many are leased: a value.
struct LimitedNames: Sendable {
  private var names: Set<String> = []
  /// Of each of the names, unless it is none.
  private var leasedCounts: [String: Int] = [:]

  /// How many tasks of each name may be claimed, of those that may be performed at a time.
  func room(in limits: [String: Int]) -> [String: Int] {
    guard !leasedCounts.isEmpty else { return limits }
    var room = limits
    for (name, count) in leasedCounts { room[name, default: 0] -= count }
    return room
  }

  /// A name is limited from now on, of which so many tasks are leased already.
  mutating func add(_ name: String, leasedCount: Int) {
    names.insert(name)
    leasedCounts[name] = leasedCount > 0 ? leasedCount : nil
  }

  /// Tasks were claimed.
  mutating func enter(_ tasks: [ClaimedTask]) {
    guard !names.isEmpty else { return }
    for task in tasks where names.contains(task.record.name) {
      leasedCounts[task.record.name, default: 0] += 1
    }
  }

  /// A task of this name is leased no more.
  mutating func leave(_ name: String) {
    guard !leasedCounts.isEmpty, let count = leasedCounts[name] else { return }
    leasedCounts[name] = count > 1 ? count - 1 : nil
  }
}
