#if SQLite
import SteadfastDatabases
import SteadfastQueue
import SystemFoundation

/// The tables within a transaction of the writer thread.
final class Tables: TaskTables {
  let database: Connection
  /// Whether several stores may use the tables; if so, claims expire.
  let isShared: Bool
  /// The clock that decides when claims expire, in seconds since 1970.
  let clock: @Sendable () -> Double
  var changedOrderKeys: [String] = []
  var newMembers: [TaskRecord] = []

  init(_ database: Connection, isShared: Bool, clock: @escaping @Sendable () -> Double) {
    self.database = database
    self.isShared = isShared
    self.clock = clock
  }

  var changedRowCount: Int? { database.changeCount }

  static let nextPosition = Dialect.nextPosition

  // MARK: Order keys

  func updateTurnsOfChangedOrderKeys() throws {
    for key in Set(changedOrderKeys.map(ExactText.init)).map(\.text) {
      try database.run(
        """
        update steadfast_task set has_turn = 0
        where order_key = ?1 and has_turn and state <> 'running'
          and seq is not (
            select seq from steadfast_task where order_key = ?1 and in_order
            order by order_number limit 1)
        """,
        .text(key)
      )
      try database.run(
        """
        update steadfast_task set has_turn = 1
        where seq = (
            select seq from steadfast_task where order_key = ?1 and in_order
            order by order_number limit 1)
          and not exists (
            select 1 from steadfast_task as other where other.order_key = ?1 and other.has_turn)
        """,
        .text(key)
      )
    }
    changedOrderKeys = []
  }
}

/// Reading and updating the task of a change.
extension Tables {
  func entry(of id: TaskID) throws -> TaskEntry? {
    try database.first(
      """
      select \(TaskEntry.columns),
        exists (select 1 from steadfast_dependency where dependency = ?1 and is_named),
        seq
      from steadfast_task where id = ?1
      """,
      .id(id)
    ) { row in try TaskEntry(id, row, hasNumber: true) }
  }

  func promoteSuccessor(ofKey key: String, taskName name: String) throws {
    try database.run(
      """
      update steadfast_task set key_role = 'holder'
      where name = ?1 and unique_key = ?2 and key_role = 'successor'
        and not exists (
          select 1 from steadfast_task as other
          where other.name = ?1 and other.unique_key = ?2 and other.key_role = 'holder')
      """,
      .text(name),
      .text(key)
    )
  }

  /// Stores a failure as the last failure of a task.
  func recordFailure(_ failure: TaskFailure, of entry: TaskEntry) throws {
    let earlier = try database.first(
      "select last_error, failed_date, earlier_failures from steadfast_task where seq = ?1",
      entry.seq,
      read: StoredFailures.jsonWithLastFailure
    )
    try database.run(
      """
      update steadfast_task set last_error = ?2, failed_date = ?3, earlier_failures = ?4
      where seq = ?1
      """,
      entry.seq,
      .text(failure.reason),
      .date(failure.date),
      .text(earlier ?? nil)
    )
  }
}

extension TaskEntry {
  /// The number of the row.
  var seq: SQLValue { .integer(rowNumber) }
}

extension Connection {
  /// Returns the task with an ID; `nil` if no task has the ID.
  func record(of id: TaskID) throws -> TaskRecord? {
    try first("select \(Self.columns) from steadfast_task where id = ?1", .id(id), read: record)
  }
}
#endif
