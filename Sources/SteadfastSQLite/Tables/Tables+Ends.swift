#if SQLite
import SteadfastDatabases
import SteadfastQueue
import SystemFoundation

/// Changes that end a task, or an attempt to perform a task.
extension Tables {
  func end(_ target: TaskTarget, _ end: TaskEnd) throws -> ChangeOutcome {
    if !end.retains, case .claimed(let lease) = target, try removeIfUnrelated(lease) {
      return .done
    }
    guard let entry = try entryToChange(target, in: TaskState.unclaimed) else { return .stale }
    let others =
      entry.affectsOtherTasks && end.state != .succeeded
      ? try tasksToCancel(ifTaskFails: entry.id) : []
    if entry.affectsOtherTasks { try recordEnd(of: entry.id, as: end.state) }
    for other in others { try recordEnd(of: other.id, as: .cancelled) }
    if end.retains {
      if let failure = end.failure { try recordFailure(failure, of: entry) }
      try database.run(
        """
        update steadfast_task set state = ?2, finished_date = ?3, key_role = null, has_turn = 0,
          lease_token = null, lease_end = null
        where seq = ?1
        """,
        entry.seq,
        .text(end.state.rawValue),
        .date(end.date)
      )
      if end.state == .succeeded { try removeMemory(of: entry) }
    } else {
      try delete(entry.id)
    }
    try promoteSuccessor(of: entry)
    guard entry.affectsOtherTasks else { return .done }
    try cancel(others, becauseOf: entry.id, at: end.date, retains: end.retains)
    return try outcome(for: entry, affecting: others.map(\.id))
  }

  /// Removes a claimed task with one statement if the task has no key and no relation to other
  /// tasks, like most tasks.
  ///
  /// - Returns: Whether the task was removed. A task also stays if it has rows in other tables, or
  ///   if the lease is not its current lease.
  private func removeIfUnrelated(_ lease: Lease) throws -> Bool {
    try database.run(
      """
      delete from steadfast_task
      where id = ?1 and state = 'running' and lease_token = ?2
        and key_role is null and order_key is null and payload is not null and memory_size = 0
        and name_count = 0 and batch_total is null and follower is null
        and not exists (select 1 from steadfast_dependency where dependency = ?1)
        and not exists (select 1 from steadfast_task where cause = ?1)
      """,
      .id(lease.id),
      .token(lease.token)
    ) > 0
  }

  /// Removes a task from all tables, and the tasks that were cancelled because of it.
  func delete(_ id: TaskID) throws {
    var leaving = [id]
    while let id = leaving.popLast() {
      leaving += try database.ids("select id from steadfast_task where cause = ?1", .id(id))
      try database.run("delete from steadfast_payload where task_id = ?1", .id(id))
      try database.run("delete from steadfast_dependency where dependent = ?1", .id(id))
      try database.run(Self.memoryDeletion, .id(id))
      try database.run("delete from steadfast_task where id = ?1", .id(id))
    }
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
      where name = ?1 and unique_key = ?2 and key_role = 'successor'
        and (expiry_date is null or expiry_date > ?3)
      """,
      .text(holder.name),
      .text(key),
      .date(date)
    ) { row in (id: row.id(0), orderKey: row.unlessNull(1, row.text)) }
    guard let found, let successor = found.id else { return nil }
    if let key = found.orderKey { changedOrderKeys.append(key) }
    try database.run("update steadfast_task set key_role = null where id = ?1", .id(holder.id))
    try database.run(
      """
      update steadfast_task set key_role = 'holder',
        retry_count = holder.retry_count, interruption_count = holder.interruption_count,
        last_error = holder.last_error, failed_date = holder.failed_date,
        earlier_failures = holder.earlier_failures, put_off = holder.put_off,
        counted_from = case when steadfast_task.available_date > holder.available_date
          then steadfast_task.counted_from else holder.counted_from end,
        available_date = max(steadfast_task.available_date, holder.available_date)
      from steadfast_task as holder where holder.id = ?1 and steadfast_task.id = ?2
      """,
      .id(holder.id),
      .id(successor)
    )
    try delete(holder.id)
    return .superseded(by: successor)
  }

  func extend(_ lease: Lease, for duration: Duration) throws -> ChangeOutcome {
    guard let entry = try entryToChange(lease) else { return .stale }
    guard isShared else { return .done }
    let now = clock()
    try database.run(
      "update steadfast_task set lease_start = ?2, lease_end = ?3 where seq = ?1",
      entry.seq,
      .real(now),
      .real(now + duration / .seconds(1))
    )
    return .done
  }

  func move(_ entry: TaskEntry, _ move: RowMove) throws {
    let position = move.keepsPosition ? "" : "seq = \(Self.nextPosition),"
    try database.run(
      """
      update steadfast_task set state = ?2, \(position)
        available_date = case when ?3 then created_date else coalesce(?4, available_date) end,
        counted_from = case when ?3 or ?4 is not null then ?5 else counted_from end,
        put_off = coalesce(?6, put_off), retry_count = coalesce(?7, retry_count),
        interruption_count = case when ?8 then 0 else interruption_count end,
        lease_token = null, lease_end = null
      where seq = ?1
      """,
      entry.seq,
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
