#if SQLite
import SteadfastDatabases
import SteadfastQueue

/// The tables as the thread that writes sees them, within a transaction.
final class Tables: TaskTables {
  let database: Connection
  /// Whether several queues use the tables, so that claims run out.
  let isShared: Bool
  /// The clock that decides when a claim has run out, in seconds since 1970.
  let clock: @Sendable () -> Double
  /// The order keys whose turns the batch may have changed.
  var changedOrders: [String] = []
  var newMembers: [TaskRecord] = []

  init(_ database: Connection, isShared: Bool, clock: @escaping @Sendable () -> Double) {
    self.database = database
    self.isShared = isShared
    self.clock = clock
  }

  var changedRowCount: Int? { database.changeCount }

  /// A number that is greater than every `seq`.
  ///
  /// It is found at the end of the table. If SQLite took the table for small, it would read all of
  /// an index instead.
  static let nextPlace = "(select coalesce(max(seq), 0) + 1 from steadfast_task not indexed)"

  // MARK: Order keys

  /// Gives the turn of each order key that was touched to the task that it belongs to.
  func giveTurns() throws {
    for key in Set(changedOrders.map(ExactText.init)).map(\.text) {
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
    changedOrders = []
  }
}
#endif
