#if PostgreSQL
import SteadfastDatabases
import SteadfastQueue

/// What a change has to know of its task.
struct TaskEntry {
  let id: TaskID
  let state: TaskState
  let name: String
  /// The unique key as it is stored, with the queue.
  let uniqueKey: String?
  let keyRole: UniqueKeyRole?
  let follower: TaskID?
  let memorySize: Int
  let priority: Int
  /// Whether another task names this one.
  let isNamed: Bool

  /// Whether the answer to an end says what it means for others.
  var concernsOthers: Bool { isNamed || follower != nil }
}

extension Tables {
  /// Looks for the task of a change, and notes its order key.
  ///
  /// - Returns: `nil` if the change is stale: if a lease is not the present one, or an unclaimed
  ///   task is in none of the states.
  func entry(_ target: TaskTarget, in states: Set<TaskState>) throws -> TaskEntry? {
    // A transaction has locked its tasks. A task that was not there then may be there now: another
    // session's insertion, which a change that was sent before it can't concern.
    let found = try database.first(
      """
      select state, name, unique_key, key_role, follower, memory_size, priority,
        exists (select 1 from steadfast_dependency where dependency = $1 and is_named),
        order_key, lease_token
      from steadfast_task where id = $1 for update
      """,
      .id(target.id)
    ) { row in
      let entry = TaskEntry(
        id: target.id,
        state: try row.state(0),
        name: row.text(1),
        uniqueKey: row.ifAny(2, row.text),
        keyRole: row.ifAny(3, row.text).flatMap(UniqueKeyRole.init),
        follower: row.id(4),
        memorySize: row.integer(5),
        priority: row.integer(6),
        isNamed: row.flag(7)
      )
      let token = row.ifAny(9) { UInt64(bitPattern: Int64(row.integer($0))) }
      return (entry: entry, orderKey: row.ifAny(8, row.text), token: token)
    }
    guard let found else { return nil }
    switch target {
    case .claimed(let lease):
      guard found.entry.state == .running, found.token == lease.token else { return nil }
    case .unclaimed:
      guard states.contains(found.entry.state) else { return nil }
    }
    if let key = found.orderKey { changedOrders.append(key) }
    return found.entry
  }

  /// Looks for a claimed task.
  func entry(_ lease: Lease) throws -> TaskEntry? { try entry(.claimed(lease), in: []) }

  /// Makes the successor of a task that has ended or left the holder of its key.
  func promoteSuccessor(of entry: TaskEntry) throws {
    guard entry.keyRole == .holder, let key = entry.uniqueKey else { return }
    try promoteSuccessor(name: entry.name, key)
  }

  func promoteSuccessor(name: String, _ key: String) throws {
    try database.send(
      """
      update steadfast_task set key_role = 'holder'
      where name = $1 and unique_key = $2 and key_role = 'successor'
        and not exists (
          select 1 from steadfast_task as other
          where other.name = $1 and other.unique_key = $2 and other.key_role = 'holder')
      """,
      .text(name),
      .text(key)
    )
  }

  /// Notes a failure as the last one of a task.
  func note(_ failure: TaskFailure, _ entry: TaskEntry) throws {
    let earlier = try database.first(
      "select last_error, failed_date, earlier_failures from steadfast_task where id = $1",
      .id(entry.id)
    ) { row -> [TaskFailure] in
      let earlier = try StoredFailures.read(row.ifAny(2, row.text))
      guard let reason = row.ifAny(0, row.text), let date = row.ifAny(1, row.date) else {
        return earlier
      }
      let last = TaskFailure(reason: reason, date: date)
      return TaskRecord.kept(earlier + [last.shortened()])
    }
    try database.send(
      """
      update steadfast_task set last_error = $2, failed_date = $3, earlier_failures = $4
      where id = $1
      """,
      .id(entry.id),
      .text(failure.reason),
      .date(failure.date),
      .text(StoredFailures.text(of: earlier ?? []))
    )
  }
}
#endif
