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
    // Most keys belong to one name, so only the others need a dictionary.
    private var first: Roles
    /// By their lanes; none has the lane of the first.
    private var others: [Int: Roles] = [:]

    init(_ first: Roles) { self.first = first }

    var isEmpty: Bool { first.isEmpty && others.isEmpty }

    /// The roles for each name; O(1) until they are looked at.
    var all: some Collection<Roles> {
      [[first.lane: first], others].lazy.flatMap(\.values).filter { !$0.isEmpty }
    }

    subscript(lane: Int) -> Roles {
      get { first.lane == lane ? first : others[lane] ?? Roles(lane: lane) }
      set {
        if first.lane == lane || first.isEmpty && others[lane] == nil {
          first = newValue
        } else {
          others[lane] = newValue.isEmpty ? nil : newValue
        }
      }
    }
  }

  private var tasks: [ExactText: Tasks] = [:]
  /// The tasks of each key that have no role.
  private(set) var withoutRole: [ExactText: Set<Int>] = [:]
  /// The tasks of which one is the recent one of its key and name when that one leaves.
  ///
  /// The recent one may be among them.
  private var lessRecent: [KeyOfName: Set<Int>] = [:]

  private struct KeyOfName: Hashable {
    let key: ExactText
    let lane: Int
  }

  /// The roles for a key and a name.
  subscript(key: String, lane: Int) -> Roles {
    get { tasks[ExactText(key)]?[lane] ?? Roles(lane: lane) }
    // In place, as the tasks of many names may share a key; and so the key is hashed once.
    _modify {
      let key = ExactText(key)
      if let index = tasks.index(forKey: key) {
        yield &tasks.values[index][lane]
        if tasks.values[index].isEmpty { tasks.remove(at: index) }
      } else {
        var roles = Roles(lane: lane)
        yield &roles
        if !roles.isEmpty { tasks[key] = Tasks(roles) }
      }
    }
  }

  /// The roles for a key, for each name.
  func roles(of key: String) -> some Collection<Roles> {
    // A key without tasks has no roles either.
    (tasks[ExactText(key)] ?? Tasks(Roles(lane: 0))).all
  }

  /// The keys for which a task has a role, or stands for new ones.
  var keys: [String] { tasks.keys.map(\.text) }

  /// The successors whose key has no holder, each with its key.
  var successorsWithoutHolder: [(key: String, slot: Int)] {
    tasks.flatMap { key, tasks in
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

  /// The tasks of which one is the recent one of a key and a name when that one leaves.
  func lessRecent(_ key: String, _ lane: Int) -> Set<Int> {
    lessRecent[KeyOfName(key: ExactText(key), lane: lane)] ?? []
  }

  mutating func addLessRecent(_ slot: Int, _ key: String, _ lane: Int) {
    lessRecent[KeyOfName(key: ExactText(key), lane: lane), default: []].insert(slot)
  }

  mutating func removeLessRecent(_ slot: Int, _ key: String, _ lane: Int) {
    guard !lessRecent.isEmpty else { return }
    let key = KeyOfName(key: ExactText(key), lane: lane)
    lessRecent[key]?.remove(slot)
    if lessRecent[key]?.isEmpty == true { lessRecent[key] = nil }
  }
}
