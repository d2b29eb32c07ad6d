#if SQLite
import SteadfastDatabases
import SteadfastQueue
import SystemFoundation

/// Changes to tasks that are not claimed, and to many tasks.
extension Tables {
  func update(_ id: TaskID, with update: TaskUpdate, payload: [UInt8]) throws -> ChangeOutcome {
    guard let entry = try entryToChange(.unclaimed(id), in: TaskState.unclaimed), !entry.isDisplaced
    else { return .stale }
    if let stored = update.payload { try replacePayload(of: entry, with: stored, bytes: payload) }
    try database.run(
      """
      update steadfast_task set
        max_retries = case when ?2 then ?3 else max_retries end,
        uses_backoff = coalesce(?4, uses_backoff), time_limit = coalesce(?5, time_limit),
        expiry_date = coalesce(?6, expiry_date),
        tags = case when ?7 then ?8 else tags end
      where seq = ?1
      """,
      entry.seq,
      .flag(update.maxRetries != nil),
      .limit(update.maxRetries),
      update.usesBackoff.map { .flag($0) } ?? .null,
      .duration(update.timeLimit),
      .date(update.expiryDate),
      .flag(update.tags != nil),
      .text(update.tags.flatMap { StoredStrings.json(of: $0) })
    )
    if let priority = update.priority?.rawValue, priority != entry.priority {
      try database.run(
        "update steadfast_task set priority = ?2, seq = \(Self.nextPosition) where seq = ?1",
        entry.seq,
        .integer(priority)
      )
    }
    return .done
  }

  private func replacePayload(
    of entry: TaskEntry,
    with stored: StoredPayload,
    bytes: [UInt8]
  ) throws {
    try database.run(
      "update steadfast_task set payload = ?2, format = ?3, schema_version = ?4 where seq = ?1",
      entry.seq,
      Self.innerPayload(bytes),
      .text(stored.format.rawValue),
      .integer(stored.version)
    )
    try setOuterPayload(bytes, of: entry.id)
  }

  func restartTasks(_ ids: [TaskID], at date: Date) throws {
    for id in ids { try restartTask(id, at: date) }
  }

  private func restartTask(_ id: TaskID, at date: Date) throws {
    try database.run(
      """
      update steadfast_task set state = 'waiting', available_date = ?2, counted_from = ?2,
        retry_count = 0, interruption_count = 0, put_off = 0,
        last_error = null, failed_date = null, earlier_failures = null, finished_date = null,
        expiry_date = case when expiry_date <= ?2 then null else expiry_date end,
        key_role = case when unique_key is not null then coalesce(key_role, 'holder') end,
        cause = null, seq = \(Self.nextPosition), lease_token = null, lease_end = null
      where id = ?1
      """,
      .id(id),
      .date(date)
    )
  }

  func holder(ofKey key: String, taskName name: String) throws -> TaskID? {
    try database.first(
      """
      select id from steadfast_task where name = ?1 and unique_key = ?2 and key_role = 'holder'
      """,
      .text(name),
      .text(key)
    ) { $0.id(0) } ?? nil
  }

  // MARK: Removals

  func remove(_ id: TaskID) throws -> ChangeOutcome {
    guard let entry = try entryToChange(.unclaimed(id), in: TaskState.ended) else { return .stale }
    let along = try removeWithCascade(id)
    guard entry.affectsOtherTasks else { return .done }
    return .doneWithConsequences(Consequences(tasks: along))
  }

  /// Removes a task, and the tasks that were cancelled because of it.
  ///
  /// - Returns: The other removed tasks, in the order of their IDs.
  private func removeWithCascade(_ id: TaskID) throws -> [TaskID] {
    var others: [TaskID] = []
    if try database.hasRow("select 1 from steadfast_task where cause = ?1", .id(id)) {
      let leaving = try database.allRows(
        """
        with recursive leaving (id) as (
          select id from steadfast_task where cause = ?1
          union
          select task.id from leaving join steadfast_task as task on task.cause = leaving.id
        )
        select id, order_key from steadfast_task
        where id in (select id from leaving) order by id
        """,
        .id(id)
      ) { row in (id: row.id(0), orderKey: row.unlessNull(1, row.text)) }
      others = leaving.compactMap(\.id)
      changedOrderKeys += leaving.compactMap(\.orderKey)
    }
    try delete(id)
    return others
  }

  func prune(
    _ state: TaskState,
    in queue: String,
    endedBefore date: Date?,
    keepingLatest count: Int?,
    now: Date
  ) throws -> ChangeOutcome {
    let prunable = """
      select id from steadfast_task
      where queue = ?1 and state = ?2 and has_ended
        and (unique_until is null or unique_until <= ?3) and not in_order and cause is null
      """
    var leaving: [TaskID] = []
    if let date {
      leaving += try database.ids(
        prunable + " and finished_date < ?4",
        .text(queue),
        .text(state.rawValue),
        .date(now),
        .date(date)
      )
    }
    if let count {
      leaving += try database.ids(
        prunable + " order by finished_date desc, id desc limit -1 offset ?4",
        .text(queue),
        .text(state.rawValue),
        .date(now),
        .integer(count)
      )
    }
    for id in leaving { _ = try removeWithCascade(id) }
    return .done
  }

  // MARK: Many tasks

  func unparkTasks(named name: String, in queue: String) throws -> ChangeOutcome {
    let found = try database.allRows(
      """
      select seq, order_key from steadfast_task
      where queue = ?1 and name = ?2 and state = 'parked' order by seq
      """,
      .text(queue),
      .text(name)
    ) { row in (seq: row.integer(0), orderKey: row.unlessNull(1, row.text)) }
    for task in found {
      try database.run(
        "update steadfast_task set state = 'waiting', seq = \(Self.nextPosition) where seq = ?1",
        .integer(task.seq)
      )
      if let key = task.orderKey { changedOrderKeys.append(key) }
    }
    return .done
  }

  /// Corrects the dates after the clock was set back: counts them from `now` if they were counted
  /// from a later date.
  ///
  /// These dates include the ends of claims.
  func rebase(to now: Date) throws -> ChangeOutcome {
    if try database.hasRow(Self.taskWithLaterDate, .date(now)) { try rebaseDates(to: now) }
    try database.run(
      """
      update steadfast_task indexed by steadfast_lease
      set lease_end = ?1 + (lease_end - lease_start), lease_start = ?1
      where state = 'running' and lease_start > ?1
      """,
      .real(clock())
    )
    return .done
  }

  /// Finds a task with a date that a rebase changes, in one pass over the table.
  private static let taskWithLaterDate = """
    select 1 from steadfast_task
    where created_date > ?1
      or not has_ended and (counted_from > ?1 or failed_date > ?1)
    limit 1
    """

  private func rebaseDates(to now: Date) throws {
    let found = try database.allRows(
      """
      select seq from steadfast_task
      where not has_ended and coalesce(
        counted_from, case when available_date = created_date then created_date end) > ?1
      order by seq
      """,
      .date(now)
    ) { $0.integer(0) }
    for seq in found {
      try database.run(Self.rebasing, .integer(seq), .date(now))
    }
    // A date that is before the creation of its task comes from a later task, which replaced the
    // content of this task. Such a date was counted from the creation of that later task.
    try database.run(
      """
      update steadfast_task set created_date = ?1,
        unique_until = case when unique_until < created_date then unique_until
          else ?1 + (unique_until - created_date) end,
        latest_date = case when latest_date < created_date then latest_date
          else ?1 + (latest_date - created_date) end
      where created_date > ?1
      """,
      .date(now)
    )
    try database.run(
      "update steadfast_task set failed_date = ?1 where failed_date > ?1 and not has_ended",
      .date(now)
    )
  }

  /// Counts the available date of a task from `?2` again.
  ///
  /// A suspended task wakes instead, so that its handler can compute the date again.
  private static let rebasing = """
    update steadfast_task set
      available_date = case when state = 'suspended' then min(created_date, ?2)
        else ?2 + (available_date - coalesce(counted_from, created_date)) end,
      counted_from = case
        when state <> 'suspended' and counted_from is not null then ?2 end,
      put_off = put_off and state <> 'suspended',
      seq = case when state in ('waiting', 'suspended') then \(nextPosition) else seq end,
      state = case when state = 'suspended' then 'waiting' else state end
    where seq = ?1
    """
}

/// The memory of tasks, and the values of the store.
extension Tables {
  func remember(_ lease: Lease, named name: String, value: [UInt8]) throws -> ChangeOutcome {
    guard let entry = try entryToChange(lease) else { return .stale }
    try database.run(
      """
      insert into steadfast_memory (task_id, name, value) values (?1, ?2, ?3)
      on conflict (task_id, name) do update set value = excluded.value
      """,
      .id(lease.id),
      .text(name),
      .bytes(value)
    )
    try database.run(
      "update steadfast_task set interruption_count = 0 where seq = ?1",
      entry.seq
    )
    try updateMemorySize(of: lease.id)
    return .done
  }

  /// The end of a statement that reads or deletes the memory of a task.
  ///
  /// Without the index's name, SQLite would read the whole table if its statistics said that the
  /// table is small.
  private static let memory = """
    from steadfast_memory indexed by sqlite_autoindex_steadfast_memory_1 where task_id = ?1
    """

  static let memoryDeletion = "delete \(memory)"

  static let memorySelection = "select name, value \(memory)"

  private func updateMemorySize(of id: TaskID) throws {
    try database.run(
      """
      update steadfast_task set memory_size = (
          select coalesce(sum(length(cast(name as blob)) + length(value)), 0)
          \(Self.memory))
      where id = ?1
      """,
      .id(id)
    )
  }

  func suspend(
    _ lease: Lease,
    until date: Date,
    awaiting names: [String],
    countedFrom origin: Date?
  ) throws -> ChangeOutcome {
    guard let entry = try entryToChange(lease) else { return .stale }
    let hasCome = try names.contains { name in
      try database.hasRow(
        """
        select 1 from steadfast_memory where task_id = ?1 and name = ?2 and length(value) > 0
        """,
        .id(lease.id),
        .text(name)
      )
    }
    try move(
      entry,
      hasCome
        ? RowMove(to: .waiting, wakes: true, clearsInterruptions: true)
        : RowMove(
          to: .suspended,
          availableDate: date,
          countedFrom: origin,
          isPostponed: false,
          clearsInterruptions: true
        )
    )
    return .done
  }

  func complete(_ id: TaskID, named name: String, value: [UInt8]) throws -> ChangeOutcome {
    guard let entry = try entryToChange(.unclaimed(id), in: TaskState.unfinished) else {
      return .stale
    }
    let filled = try database.run(
      """
      update steadfast_memory set value = ?3
      where task_id = ?1 and name = ?2 and length(value) = 0
      """,
      .id(id),
      .text(name),
      .bytes(value)
    )
    guard filled > 0 else { return .stale }
    try updateMemorySize(of: id)
    guard entry.state == .suspended else { return .done }
    try move(entry, RowMove(to: .waiting, wakes: true))
    return .done
  }

  func removeMemory(of entry: TaskEntry) throws {
    guard entry.memorySize > 0 else { return }
    try database.run(Self.memoryDeletion, .id(entry.id))
    try database.run("update steadfast_task set memory_size = 0 where id = ?1", .id(entry.id))
  }

  // MARK: Values

  func setValue(_ bytes: [UInt8]?, named name: String) throws -> ChangeOutcome {
    if let bytes {
      try database.run(
        """
        insert into steadfast_value (name, bytes) values (?1, ?2)
        on conflict (name) do update set bytes = excluded.bytes
        """,
        .text(name),
        .bytes(bytes)
      )
    } else {
      try database.run("delete from steadfast_value where name = ?1", .text(name))
    }
    return .done
  }
}
#endif
