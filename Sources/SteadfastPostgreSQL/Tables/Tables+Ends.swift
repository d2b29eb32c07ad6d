#if PostgreSQL
import SteadfastDatabases
import SteadfastQueue
import SystemFoundation

/// Changes that end a task, or an attempt to perform a task.
extension Tables {
  func end(_ target: TaskTarget, _ end: TaskEnd) throws -> ChangeOutcome {
    guard let entry = try entryToChange(target, in: TaskState.unclaimed) else { return .stale }
    let others =
      entry.affectsOtherTasks && end.state != .succeeded
      ? try tasksToCancel(ifTaskFails: entry.id) : []
    if entry.affectsOtherTasks { try recordEnds(of: [entry.id], as: end.state) }
    if end.retains {
      if let failure = end.failure { try recordFailure(failure, of: entry) }
      try database.send(
        """
        update steadfast_task set state = $2, finished_date = $3, key_role = null,
          has_turn = false, lease_token = null, lease_end = null
        where id = $1
        """,
        .id(entry.id),
        .text(end.state.rawValue),
        .date(end.date)
      )
      if end.state == .succeeded { try removeMemory(of: entry) }
    } else {
      try delete([entry.id])
    }
    try promoteSuccessor(of: entry)
    guard entry.affectsOtherTasks else { return .done }
    try cancel(others, becauseOf: entry.id, at: end.date, retains: end.retains)
    return try outcome(for: entry, affecting: others.map(\.id))
  }

  /// Replaces a task that is about to be retried with the successor of its unique key.
  ///
  /// The task is not replaced if there is no successor, if the successor expires before the retry,
  /// if the task has a memory, or if other tasks depend on it.
  ///
  /// - Returns: The outcome of the retry; `nil` if the task was not replaced.
  func replaceWithSuccessor(_ holder: TaskEntry, at date: Date) throws -> ChangeOutcome? {
    guard holder.keyRole == .holder, let key = holder.uniqueKey, !holder.affectsOtherTasks,
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
    ) { row in (id: row.id(0), orderKey: row.unlessNull(1, row.text)) }
    guard let found, let successor = found.id else { return nil }
    if let key = found.orderKey { changedOrderKeys.append(key) }
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

  func extend(_ lease: Lease, for duration: Duration) throws -> ChangeOutcome {
    guard let entry = try entryToChange(lease) else { return .stale }
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

  func move(_ entry: TaskEntry, _ move: RowMove) throws {
    let position = move.keepsPosition ? "" : "position = \(Self.nextPosition),"
    try database.send(
      """
      update steadfast_task set state = $2, \(position)
        available_date = case when $3::boolean then created_date
          else coalesce($4, available_date) end,
        counted_from = case when $3::boolean or $4 is not null then $5 else counted_from end,
        put_off = coalesce($6, put_off), retry_count = coalesce($7, retry_count),
        interruption_count = case when $8::boolean then 0 else interruption_count end,
        lease_token = null, lease_end = null
      where id = $1
      """,
      .id(entry.id),
      .text(move.state.rawValue),
      .flag(move.wakes),
      .date(move.availableDate),
      .date(move.countedFrom),
      move.isPostponed.map { .flag($0) } ?? .null,
      .integer(move.retryCount),
      .flag(move.clearsInterruptions)
    )
  }

  // MARK: Overdue claims

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
