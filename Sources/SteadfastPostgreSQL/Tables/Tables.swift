#if PostgreSQL
import SteadfastDatabases
import SteadfastQueue

/// The tables within a transaction of one thread.
final class Tables: TaskTables {
  let database: Connection
  /// Whether several stores may use the tables; if so, claims expire.
  let isShared: Bool
  /// The first of the two numbers that identify an advisory lock, for each kind of lock.
  struct Locks {
    /// For order keys.
    var orders: Int64 = 1
    /// For stored values.
    var values: Int64 = 2
    /// For unique keys.
    var keys: Int64 = 3
  }

  let locks: Locks
  /// Whether the transaction makes changes.
  var hasChanged = false
  /// Whether tasks that the changes do not name may have become available.
  var hasFreedOthers = false
  var changedOrderKeys: [String] = []
  var newMembers: [TaskRecord] = []

  init(_ database: Connection, isShared: Bool, locks: Locks = Locks()) {
    self.database = database
    self.isShared = isShared
    self.locks = locks
  }

  static let nextPosition = "nextval('steadfast_place')"

  // MARK: Order keys

  func updateTurnsOfChangedOrderKeys() throws {
    for key in Set(changedOrderKeys.map(ExactText.init)).map(\.text) {
      try database.send(
        """
        update steadfast_task set has_turn = false
        where order_key = $1 and has_turn and state <> 'running'
          and id is distinct from (
            select first.id from steadfast_task as first
            where first.order_key = $1 and first.in_order
            order by first.order_number limit 1)
        """,
        .text(key)
      )
      try database.send(
        """
        update steadfast_task set has_turn = true
        where id = (
            select first.id from steadfast_task as first
            where first.order_key = $1 and first.in_order
            order by first.order_number limit 1)
          and not exists (
            select 1 from steadfast_task as other where other.order_key = $1 and other.has_turn)
        """,
        .text(key)
      )
    }
    if !changedOrderKeys.isEmpty { hasFreedOthers = true }
    changedOrderKeys = []
  }
}

/// Reading and updating the task of a change.
extension Tables {
  func entry(of id: TaskID) throws -> TaskEntry? {
    // The transaction has already locked the tasks that its changes name. Only a task that another
    // session has inserted since then is not locked yet, and no change can refer to that task.
    try database.first(
      """
      select \(TaskEntry.columns),
        exists (select 1 from steadfast_dependency where dependency = $1 and is_named)
      from steadfast_task where id = $1 for update
      """,
      .id(id)
    ) { row in try TaskEntry(id, row) }
  }

  func promoteSuccessor(ofKey key: String, taskName name: String) throws {
    hasFreedOthers = true
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

  /// Stores a failure as the last failure of a task.
  func recordFailure(_ failure: TaskFailure, of entry: TaskEntry) throws {
    let earlier = try database.first(
      "select last_error, failed_date, earlier_failures from steadfast_task where id = $1",
      .id(entry.id),
      read: StoredFailures.jsonWithLastFailure
    )
    try database.send(
      """
      update steadfast_task set last_error = $2, failed_date = $3, earlier_failures = $4
      where id = $1
      """,
      .id(entry.id),
      .text(failure.reason),
      .date(failure.date),
      .text(earlier ?? nil)
    )
  }
}
#endif
