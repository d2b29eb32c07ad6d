#if PostgreSQL
import SteadfastDatabases
import SteadfastQueue

/// The tables as a thread sees them, within a transaction.
final class Tables: TaskTables {
  let database: Connection
  /// Whether several queues use the tables, so that claims run out.
  let isShared: Bool
  /// The first numbers of the advisory locks of these tables.
  struct Locks {
    /// Those of order keys.
    var orders: Int64 = 1
    /// Those of values.
    var values: Int64 = 2
    /// Those of unique keys.
    var keys: Int64 = 3
  }

  let locks: Locks
  /// Whether the transaction has changed something.
  var hasChanged = false
  /// Whether tasks may have become available that the changes do not name.
  var hasFreedOthers = false
  /// The order keys whose turns the batch may have changed.
  var changedOrders: [String] = []
  var newMembers: [TaskRecord] = []

  init(_ database: Connection, isShared: Bool, locks: Locks = Locks()) {
    self.database = database
    self.isShared = isShared
    self.locks = locks
  }

  static let nextPlace = "nextval('steadfast_place')"

  // MARK: Order keys

  /// Gives the turn of each order key that was touched to the task that it belongs to.
  func giveTurns() throws {
    for key in Set(changedOrders.map(ExactText.init)).map(\.text) {
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
    if !changedOrders.isEmpty { hasFreedOthers = true }
    changedOrders = []
  }
}
#endif
