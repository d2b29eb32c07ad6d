#if SQLite
import SteadfastDatabases
import SteadfastQueue
import SystemFoundation

/// Overdue claims.
extension Tables {
  /// Selects expired claims in any order.
  ///
  /// To sort by ID, SQLite would read all tasks.
  static let overdueClaims = """
    select seq, order_key from steadfast_task indexed by steadfast_lease
    where state = 'running' and lease_end <= ?1
    """

  static let claimsWithoutExpiry = """
    select seq, order_key from steadfast_task indexed by steadfast_lease
    where state = 'running' and lease_end is null
    """

  /// Makes the tasks with expired claims available.
  func endOverdueClaims() throws {
    try requeueInterrupted(
      try database.allRows(
        Self.overdueClaims,
        .real(clock())
      ) { row in (seq: row.integer(0), orderKey: row.unlessNull(1, row.text)) }
    )
  }

  /// Makes available the tasks of claims that never expire.
  ///
  /// An earlier process, which used the tables alone, has left such claims.
  func endClaimsWithoutExpiry() throws {
    try requeueInterrupted(
      try database.allRows(Self.claimsWithoutExpiry) { row in
        (seq: row.integer(0), orderKey: row.unlessNull(1, row.text))
      }
    )
  }

  /// Makes tasks available again, and counts an interruption of each.
  private func requeueInterrupted(_ tasks: [(seq: Int, orderKey: String?)]) throws {
    guard !tasks.isEmpty else { return }
    for task in tasks {
      try database.run(
        """
        update steadfast_task set state = 'waiting',
          interruption_count = min(interruption_count, 9223372036854775806) + 1,
          lease_token = null, lease_end = null
        where seq = ?1
        """,
        .integer(task.seq)
      )
    }
    changedOrderKeys = tasks.compactMap(\.orderKey)
    try updateTurnsOfChangedOrderKeys()
  }
}
#endif
