package import SteadfastQueue

/// What a change has to know of its task.
package struct TaskEntry {
  package let id: TaskID
  /// The number of its row, in a database that finds the row faster by it.
  package let rowNumber: Int?
  package let state: TaskState
  package let name: String
  /// The unique key as it is stored, with the queue.
  package let uniqueKey: String?
  package let keyRole: UniqueKeyRole?
  package let follower: TaskID?
  package let memorySize: Int
  package let priority: Int
  /// Whether another task names this one.
  package let isNamed: Bool
  /// The order key as it is stored, with the queue.
  package let orderKey: String?
  private let token: UInt64?

  /// The columns that ``init(_:_:)`` reads, but for the last, which says whether it is named.
  package static let columns = """
    state, name, unique_key, key_role, follower, memory_size, priority, order_key, lease_token
    """

  /// Reads a row of ``columns``, of a flag that says whether another task names this one, and of
  /// the row's number if there is one.
  package init(_ id: TaskID, _ row: some TaskRow, hasNumber: Bool = false) throws {
    self.id = id
    state = try row.state(0)
    name = row.text(1)
    uniqueKey = row.ifAny(2, row.text)
    keyRole = row.ifAny(3, row.text).flatMap(UniqueKeyRole.init)
    follower = row.id(4)
    memorySize = row.integer(5)
    priority = row.integer(6)
    orderKey = row.ifAny(7, row.text)
    token = row.token(8)
    isNamed = row.flag(9)
    rowNumber = hasNumber ? row.integer(10) : nil
  }

  /// Whether the answer to an end says what it means for others.
  package var concernsOthers: Bool { isNamed || follower != nil }

  /// Whether it expired before a later task was added, which has taken its unique key.
  package var isDisplaced: Bool { uniqueKey != nil && keyRole == nil && !state.isFinished }

  /// Whether a change with this target concerns the task: a lease is the present one, or an
  /// unclaimed task is in one of the states.
  fileprivate func isConcerned(by target: TaskTarget, in states: Set<TaskState>) -> Bool {
    switch target {
    case .claimed(let lease): state == .running && token == lease.token
    case .unclaimed: states.contains(state)
    }
  }
}

extension TaskTables {
  /// Looks for the task of a change, and notes its order key.
  ///
  /// - Returns: `nil` if the change is stale: if a lease is not the present one, or an unclaimed
  ///   task is in none of the states.
  package func entry(_ target: TaskTarget, in states: Set<TaskState>) throws -> TaskEntry? {
    guard let entry = try entry(of: target.id), entry.isConcerned(by: target, in: states) else {
      return nil
    }
    if let key = entry.orderKey { changedOrders.append(key) }
    return entry
  }

  /// Looks for a claimed task.
  package func entry(_ lease: Lease) throws -> TaskEntry? { try entry(.claimed(lease), in: []) }

  /// Makes the successor of a task that has ended or left the holder of its key.
  package func promoteSuccessor(of entry: TaskEntry) throws {
    guard entry.keyRole == .holder, let key = entry.uniqueKey else { return }
    try promoteSuccessor(name: entry.name, key)
  }
}
