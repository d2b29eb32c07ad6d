#if SQLite
import SteadfastDatabases
import SteadfastQueue
import SystemFoundation

/// The tables within a transaction of the writer thread.
final class Tables: TaskTables {
  /// Each change of a task rewrites its row, so a larger payload has a separate row.
  static let longestInnerPayload = 2_048

  let database: Connection
  let isShared: Bool
  /// The clock that decides when claims expire, in seconds since 1970.
  let clock: @Sendable () -> Double
  var changedOrderKeys: [String] = []
  var newMembers: [TaskID] = []

  init(_ database: Connection, isShared: Bool, clock: @escaping @Sendable () -> Double) {
    self.database = database
    self.isShared = isShared
    self.clock = clock
  }

  var changedRowCount: Int? { database.changeCount }

  static let nextPosition = Dialect.nextPosition

  func removeIfUnrelated(_ lease: Lease) throws -> Bool {
    try database.run(
      """
      delete from steadfast_task
      where id = ?1 and state = 'running' and lease_token = ?2
        and key_role is null and order_key is null and payload is not null and memory_size = 0
        and command is null
        and name_count = 0 and batch_total is null and follower is null
        and not exists (select 1 from steadfast_dependency where dependency = ?1)
        and not exists (select 1 from steadfast_task where cause = ?1)
      """,
      .id(lease.id),
      .token(lease.token)
    ) > 0
  }

  func extendClaim(of id: TaskID, for duration: Duration) throws {
    let now = clock()
    try database.run(
      "update steadfast_task set lease_start = ?2, lease_end = ?3 where id = ?1",
      .id(id),
      .real(now),
      .real(now + duration / .seconds(1))
    )
  }

  /// These dates include the ends of claims.
  func rebase(to now: Date) throws -> ChangeOutcome {
    try rebaseDates(to: now)
    try database.run(
      """
      update steadfast_task indexed by steadfast_lease
      set lease_end = ?1 + (lease_end - lease_start), lease_start = ?1,
        claim_date = min(claim_date, ?1)
      where state = 'running' and lease_start > ?1
      """,
      .real(clock())
    )
    return .done
  }
}
#endif
