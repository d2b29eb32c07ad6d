#if PostgreSQL
import SteadfastDatabases
import SteadfastQueue
import SystemFoundation

/// Overdue claims.
extension Tables {
  /// The kinds of claims whose tasks a store makes available again.
  enum OverdueClaims: String, CaseIterable {
    /// Claims that have expired.
    case expired = "state = 'running' and lease_end <= store_clock()"
    /// Claims that never expire, from a store that used the tables alone.
    ///
    /// While a shared store uses the tables, no such store has them open.
    case withoutExpiry = "state = 'running' and lease_end is null"
    /// Claims of shared stores.
    ///
    /// While a store uses the tables alone, no shared store has them open.
    case withExpiry = "state = 'running' and lease_end is not null"
    /// All claims, for a store that starts to use the tables alone.
    case all = "state = 'running'"

    var statement: String { "select id, order_key from steadfast_task where \(rawValue)" }
  }

  /// A task with an overdue claim.
  struct OverdueTask {
    let id: TaskID
    let orderKey: String?
  }

  func tasks(withClaims claims: OverdueClaims) throws -> [OverdueTask] {
    try database.allRows(claims.statement) { row in
      row.id(0).map { OverdueTask(id: $0, orderKey: row.unlessNull(1, row.text)) }
    }.compactMap(\.self)
  }

  /// Locks the tasks that can be locked without waiting, and their order keys.
  ///
  /// - Returns: The locked tasks.
  func tryLock(_ ids: [TaskID]) throws -> [TaskID] {
    try database.ids(
      """
      select id from steadfast_task
      where id = any ($1) and (order_key is null
        or pg_try_advisory_xact_lock($2::bigint::integer, hashtext(order_key) & 4095))
      order by id for update skip locked
      """,
      .ids(ids),
      .integer(locks.orders)
    )
  }

  /// Makes tasks with overdue claims available, and counts an interruption of each.
  ///
  /// The transaction must have locked the order keys of the tasks.
  func requeueInterrupted(_ ids: [TaskID], ifStill claims: OverdueClaims) throws {
    guard !ids.isEmpty else { return }
    changedOrderKeys = try database.allRows(
      """
      update steadfast_task set state = 'waiting',
        interruption_count = least(interruption_count, 9223372036854775806) + 1,
        lease_token = null, lease_end = null
      where id = any ($1) and \(claims.rawValue)
      returning order_key
      """,
      .ids(ids)
    ) { row in row.unlessNull(0, row.text) }.compactMap(\.self)
    try updateTurnsOfChangedOrderKeys()
  }

  /// Makes the tasks of lost claims available again: claims whose tasks no queue received.
  func requeueTasks(claimedWith tokens: [UInt64]) throws {
    let tokens = SQLValue.array(tokens.map { .token($0) }, of: .integer)
    let ids = try database.ids(
      "select id from steadfast_task where state = 'running' and lease_token = any ($1)",
      tokens
    )
    guard !ids.isEmpty else { return }
    try lockOrderKeys(of: ids)
    changedOrderKeys = try database.allRows(
      """
      update steadfast_task set state = 'waiting', lease_token = null, lease_end = null
      where state = 'running' and lease_token = any ($1) returning order_key
      """,
      tokens
    ) { row in row.unlessNull(0, row.text) }.compactMap(\.self)
    try updateTurnsOfChangedOrderKeys()
  }
}
#endif
