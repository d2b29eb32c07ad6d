#if PostgreSQL
import SteadfastDatabases
import SteadfastQueue
import SystemFoundation

/// The ends of attempts and of tasks.
extension Tables {
  func end(
    _ target: TaskTarget,
    as state: TaskState,
    at date: Date,
    retains: Bool,
    failure: TaskFailure?
  ) throws -> ChangeOutcome {
    guard let entry = try entry(target, in: TaskState.unclaimed) else { return .stale }
    let others =
      entry.concernsOthers && state != .succeeded ? try tasksToCancel(ifTaskFails: entry.id) : []
    if entry.concernsOthers { try recordEnds(of: [entry.id], as: state) }
    if retains {
      if let failure { try recordFailure(failure, of: entry) }
      try database.send(
        """
        update steadfast_task set state = $2, finished_date = $3, key_role = null,
          has_turn = false, lease_token = null, lease_end = null
        where id = $1
        """,
        .id(entry.id),
        .text(state.rawValue),
        .date(date)
      )
      if state == .succeeded { try removeMemory(of: entry) }
    } else {
      try delete([entry.id])
    }
    try promoteSuccessor(of: entry)
    guard entry.concernsOthers else { return .done }
    try cancel(others, becauseOf: entry.id, at: date, retains: retains)
    return try outcome(for: entry, affecting: others.map(\.id))
  }

  func retry(
    _ lease: Lease,
    at date: Date,
    _ retryCount: Int,
    _ failure: TaskFailure?,
    countedFrom origin: Date?
  ) throws -> ChangeOutcome {
    guard let entry = try entry(lease) else { return .stale }
    if let failure { try recordFailure(failure, of: entry) }
    try database.send(
      """
      update steadfast_task set state = 'waiting', available_date = $2, retry_count = $3,
        interruption_count = 0, put_off = true, counted_from = $4, position = \(Self.nextPlace),
        lease_token = null, lease_end = null
      where id = $1
      """,
      .id(entry.id),
      .date(date),
      .integer(retryCount),
      .date(origin)
    )
    return try replaceWithSuccessor(entry, at: date) ?? .done
  }

  /// Replaces a task with its successor for a retry, if there is a successor that has not expired
  /// by the date of the retry.
  ///
  /// The task stays if it remembers something, or if other tasks depend on it.
  private func replaceWithSuccessor(_ holder: TaskEntry, at date: Date) throws -> ChangeOutcome? {
    guard holder.keyRole == .holder, let key = holder.uniqueKey, !holder.concernsOthers,
      holder.memorySize == 0
    else { return nil }
    let found = try database.first(
      """
      select id, order_key from steadfast_task
      where name = $1 and unique_key = $2 and key_role = 'successor'
        and (expiry_date is null or expiry_date > $3) for update
      """,
      .text(holder.name),
      .text(key),
      .date(date)
    ) { row in (id: row.id(0), orderKey: row.ifAny(1, row.text)) }
    guard let found, let successor = found.id else { return nil }
    if let key = found.orderKey { changedOrders.append(key) }
    try database.send("update steadfast_task set key_role = null where id = $1", .id(holder.id))
    try database.send(
      """
      update steadfast_task as task set key_role = 'holder',
        retry_count = holder.retry_count, interruption_count = holder.interruption_count,
        last_error = holder.last_error, failed_date = holder.failed_date,
        earlier_failures = holder.earlier_failures, put_off = holder.put_off,
        counted_from = case when task.available_date > holder.available_date
          then task.counted_from else holder.counted_from end,
        available_date = greatest(task.available_date, holder.available_date)
      from steadfast_task as holder where holder.id = $1 and task.id = $2
      """,
      .id(holder.id),
      .id(successor)
    )
    try delete([holder.id])
    return .superseded(by: successor)
  }

  func release(_ lease: Lease) throws -> ChangeOutcome {
    guard let entry = try entry(lease) else { return .stale }
    try database.send(
      """
      update steadfast_task set state = 'waiting', lease_token = null, lease_end = null
      where id = $1
      """,
      .id(entry.id)
    )
    return .done
  }

  func park(_ lease: Lease, _ failure: TaskFailure) throws -> ChangeOutcome {
    guard let entry = try entry(lease) else { return .stale }
    try recordFailure(failure, of: entry)
    try move(entry, to: .parked)
    return .done
  }

  func extend(_ lease: Lease, for duration: Duration) throws -> ChangeOutcome {
    guard let entry = try entry(lease) else { return .stale }
    guard isShared else { return .done }
    try database.send(
      """
      update steadfast_task
      set lease_end = store_clock() + $2::bigint * interval '1 microsecond' where id = $1
      """,
      .id(entry.id),
      .duration(duration)
    )
    return .done
  }

  /// Changes a task's state, moves the task behind its equals, and ends the task's claim, if any.
  func move(_ entry: TaskEntry, to state: TaskState) throws {
    try database.send(
      """
      update steadfast_task set state = $2, position = \(Self.nextPlace),
        lease_token = null, lease_end = null
      where id = $1
      """,
      .id(entry.id),
      .text(state.rawValue)
    )
  }

  // MARK: Overdue claims

  /// The kinds of claims that queues no longer use.
  enum OverdueClaims: String, CaseIterable {
    /// Expired claims.
    case ofThePast = "state = 'running' and lease_end <= store_clock()"
    /// Claims without an end, from a store that used the tables alone.
    ///
    /// No shared store has the tables open at the same time as such a store.
    case withoutEnd = "state = 'running' and lease_end is null"
    /// Claims of shared stores, all of which are closed once a store uses the tables alone.
    case withEnd = "state = 'running' and lease_end is not null"
    /// All claims, for a store that starts to use the tables alone.
    case all = "state = 'running'"

    var statement: String { "select id, order_key from steadfast_task where \(rawValue)" }
  }

  /// A task with an overdue claim.
  struct OverdueTask {
    let id: TaskID
    let orderKey: String?
  }

  /// Returns the tasks whose claims are of a kind.
  func tasks(withClaims claims: OverdueClaims) throws -> [OverdueTask] {
    try database.allRows(claims.statement) { row in
      row.id(0).map { OverdueTask(id: $0, orderKey: row.ifAny(1, row.text)) }
    }.compactMap(\.self)
  }

  /// Locks each task that no other session has locked, unless the task's order key is locked.
  ///
  /// - Returns: The tasks that are locked now.
  func lockUnlocked(_ ids: [TaskID]) throws -> [TaskID] {
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
    changedOrders = try database.allRows(
      """
      update steadfast_task set state = 'waiting',
        interruption_count = least(interruption_count, 9223372036854775806) + 1,
        lease_token = null, lease_end = null
      where id = any ($1) and \(claims.rawValue)
      returning order_key
      """,
      .ids(ids)
    ) { row in row.ifAny(0, row.text) }.compactMap(\.self)
    try updateTurnsOfChangedOrderKeys()
  }

  /// Makes the tasks of claims that no queue received available again.
  func requeue(claimedWith tokens: [UInt64]) throws {
    let tokens = SQLValue.array(tokens.map { .token($0) }, of: .integer)
    let ids = try database.ids(
      "select id from steadfast_task where state = 'running' and lease_token = any ($1)",
      tokens
    )
    guard !ids.isEmpty else { return }
    try lockOrders(of: ids)
    changedOrders = try database.allRows(
      """
      update steadfast_task set state = 'waiting', lease_token = null, lease_end = null
      where state = 'running' and lease_token = any ($1) returning order_key
      """,
      tokens
    ) { row in row.ifAny(0, row.text) }.compactMap(\.self)
    try updateTurnsOfChangedOrderKeys()
  }
}
#endif
