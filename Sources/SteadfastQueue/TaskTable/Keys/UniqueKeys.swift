/// The slots of the tasks that have each unique key.
///
/// A key belongs to a name, which is given by its lane. Of one key and one name, at most one task
/// is the holder, and one the successor. Tasks that have ended have no role, but are found by their
/// keys. A role is taken when a change is staged.
struct UniqueKeys: Sendable {
  /// The tasks of one key and one name with a role.
  struct Roles: Sendable {
    let lane: Int
    var holder: Int?
    var successor: Int?
    /// The task that succeeded last, of those after which no other is added for a while.
    var recent: Int?

    /// The task that waits, or else the one that is performed.
    var last: Int? { successor ?? holder }
    var isEmpty: Bool { holder == nil && successor == nil && recent == nil }
  }

  /// The tasks of one key.
  private struct Tasks: Sendable {
    // Most keys belong to one name.
    var first: Roles
    var others: [Roles] = []

    var all: [Roles] { others.isEmpty ? [first] : [first] + others }
    var lacksHolder: Bool { first.holder == nil || others.contains { $0.holder == nil } }
  }

  private var tasks: [ExactText: Tasks] = [:]
  /// The tasks of each key that have no role.
  private(set) var withoutRole: [ExactText: Set<Int>] = [:]

  /// The roles for a key and a name.
  subscript(key: String, lane: Int) -> Roles {
    get {
      guard let found = tasks[ExactText(key)] else { return Roles(lane: lane) }
      if found.first.lane == lane { return found.first }
      return found.others.first { $0.lane == lane } ?? Roles(lane: lane)
    }
    set {
      let key = ExactText(key)
      guard var found = tasks[key] else {
        if !newValue.isEmpty { tasks[key] = Tasks(first: newValue) }
        return
      }
      if found.first.lane == lane {
        found.first = newValue
      } else {
        found.others.removeAll { $0.lane == lane }
        if !newValue.isEmpty { found.others.append(newValue) }
      }
      if found.first.isEmpty {
        guard let next = found.others.popLast() else { return tasks[key] = nil }
        found.first = next
      }
      tasks[key] = found
    }
  }

  /// The roles for a key, for each name.
  func roles(of key: String) -> [Roles] {
    tasks[ExactText(key)]?.all ?? []
  }

  /// The keys for which a task has a role, or stands for new ones.
  var keys: [String] { tasks.keys.map(\.text) }

  /// The successors whose key has no holder, each with its key.
  var successorsWithoutHolder: [(key: String, slot: Int)] {
    tasks.lazy.filter(\.value.lacksHolder).flatMap { key, tasks in
      tasks.all.compactMap { roles in
        roles.holder == nil ? roles.successor.map { (key.text, $0) } : nil
      }
    }
  }

  /// The slots of all tasks that have one of these keys.
  func slots(with keys: some Sequence<String>) -> [Int] {
    keys.flatMap { key in
      roles(of: key).flatMap { [$0.holder, $0.successor].compactMap(\.self) }
        + (withoutRole[ExactText(key)].map(Array.init) ?? [])
    }
  }

  /// Notes that a task with a key has no role, or will have none if what is staged is stored.
  mutating func addWithoutRole(_ slot: Int, _ key: String) {
    withoutRole[ExactText(key), default: []].insert(slot)
  }

  mutating func removeWithoutRole(_ slot: Int, _ key: String) {
    let key = ExactText(key)
    withoutRole[key]?.remove(slot)
    if withoutRole[key]?.isEmpty == true { withoutRole[key] = nil }
  }
}
