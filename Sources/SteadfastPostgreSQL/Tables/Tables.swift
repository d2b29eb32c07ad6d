#if PostgreSQL
import SteadfastDatabases
import SteadfastQueue
import SystemFoundation

/// The tables within a transaction of one thread.
final class Tables: TaskTables {
  let database: Connection
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
  var newMembers: [TaskID] = []

  init(_ database: Connection, isShared: Bool, locks: Locks = Locks()) {
    self.database = database
    self.isShared = isShared
    self.locks = locks
  }

  static let nextPosition = "nextval('steadfast_place')"
  /// The server stores a long payload outside of the row.
  static let longestInnerPayload = Int.max

  func recordFreedTasks() { hasFreedOthers = true }

  func extendClaim(of id: TaskID, for duration: Duration) throws {
    try database.send(
      """
      update steadfast_task
      set lease_end = store_clock() + $2::bigint * interval '1 microsecond' where id = $1
      """,
      .id(id),
      .duration(duration)
    )
  }

  /// This changes nothing if several stores may use the tables, because each machine may have its
  /// own clock.
  func rebase(to now: Date) throws -> ChangeOutcome {
    if !isShared { try rebaseDates(to: now) }
    return .done
  }

  func lockForRemoval(_ ids: [TaskID], endedAs state: TaskState) throws -> [TaskID] {
    // Tasks that were cancelled because of these tasks may block other tasks with their order keys.
    let ordered = try database.ids(
      """
      \(TaskStatements.leaving)
      select id from steadfast_task
      where id = any (array(select id from leaving)) and order_key is not null
      """,
      .ids(ids)
    )
    if !ordered.isEmpty { try lockOrderKeys(of: ordered) }
    // Another session may have restarted some of the tasks since they were found.
    return try database.ids(
      """
      select id from steadfast_task where id = any ($1) and state = $2 and cause is null
      order by id for update skip locked
      """,
      .ids(ids),
      .text(state.rawValue)
    )
  }
}
#endif
