#if PostgreSQL
import SteadfastDatabases
import SteadfastQueue
import SystemFoundation

/// Changes to tasks that are not claimed.
extension Tables {
  func update(_ id: TaskID, with update: TaskUpdate, payload: [UInt8]) throws -> ChangeOutcome {
    guard let entry = try entryToChange(.unclaimed(id), in: TaskState.unclaimed), !entry.isDisplaced
    else { return .stale }
    try database.send(
      """
      update steadfast_task set
        payload = coalesce($2, payload), format = coalesce($3, format),
        schema_version = coalesce($4, schema_version),
        max_retries = case when $5::boolean then $6 else max_retries end,
        uses_backoff = coalesce($7, uses_backoff), time_limit = coalesce($8, time_limit),
        expiry_date = coalesce($9, expiry_date), tags = coalesce($10, tags),
        position = case when $11 <> priority then \(Self.nextPosition) else position end,
        priority = coalesce($11, priority)
      where id = $1
      """,
      .id(entry.id),
      update.payload == nil ? .null : .bytes(payload),
      .text(update.payload?.format.rawValue),
      .integer(update.payload?.version),
      .flag(update.maxRetries != nil),
      .limit(update.maxRetries),
      update.usesBackoff.map { .flag($0) } ?? .null,
      .duration(update.timeLimit),
      .date(update.expiryDate),
      update.tags.map { .texts($0) } ?? .null,
      .integer(update.priority?.rawValue)
    )
    return .done
  }

  func restartTasks(_ ids: [TaskID], at date: Date) throws {
    try database.send(
      """
      update steadfast_task as task set state = 'waiting', available_date = $2, counted_from = $2,
        retry_count = 0, interruption_count = 0, put_off = false,
        last_error = null, failed_date = null, earlier_failures = null, finished_date = null,
        expiry_date = case when expiry_date <= $2 then null else expiry_date end,
        key_role = case when unique_key is not null then coalesce(key_role, 'holder') end,
        cause = null, position = restarted.place, lease_token = null, lease_end = null
      from (
        select id, \(Self.nextPosition) as place from (
          select id from unnest($1::uuid[]) as listed (id) order by id) as in_order
      ) as restarted
      where task.id = restarted.id and task.id = any ($1)
      """,
      .ids(ids),
      .date(date)
    )
  }

  func holder(ofKey key: String, taskName name: String) throws -> TaskID? {
    try database.ids(
      """
      select id from steadfast_task where name = $1 and unique_key = $2 and key_role = 'holder'
      """,
      .text(name),
      .text(key)
    ).first
  }

  // MARK: Removals

  func remove(_ id: TaskID) throws -> ChangeOutcome {
    guard let entry = try entryToChange(.unclaimed(id), in: TaskState.ended) else { return .stale }
    let along = try removeWithCascade([id])
    guard entry.affectsOtherTasks else { return .done }
    return .doneWithConsequences(Consequences(tasks: along))
  }

  private static let leaving = """
    with recursive leaving (id) as (
      select id from unnest($1::uuid[]) as listed (id)
      union
      select task.id from leaving
      cross join lateral (select id from steadfast_task where cause = leaving.id offset 0) as task
    )
    """

  /// Removes tasks, and the tasks that were cancelled because of them.
  ///
  /// - Returns: The removed tasks that are not in `ids`, in the order of their IDs.
  private func removeWithCascade(_ ids: [TaskID]) throws -> [TaskID] {
    let leaving = try database.allRows(
      """
      \(Self.leaving)
      select id, order_key from steadfast_task
      where id = any (array(select id from leaving)) order by id for update
      """,
      .ids(ids)
    ) { row in (id: row.id(0), orderKey: row.unlessNull(1, row.text)) }
    changedOrderKeys += leaving.compactMap(\.orderKey)
    let all = leaving.compactMap(\.id)
    try delete(all)
    let named = Set(ids)
    return all.filter { !named.contains($0) }
  }

  /// Removes tasks from all tables.
  func delete(_ ids: [TaskID]) throws {
    guard !ids.isEmpty else { return }
    let ids = SQLValue.ids(ids)
    try database.send("delete from steadfast_dependency where dependent = any ($1)", ids)
    try database.send("delete from steadfast_memory where task_id = any ($1)", ids)
    try database.send("delete from steadfast_task where id = any ($1)", ids)
  }

  /// The maximum number of tasks that one statement removes.
  private static let mostRemovals = 1_000

  func prune(
    _ state: TaskState,
    in queue: String,
    endedBefore date: Date?,
    keepingLatest count: Int?,
    now: Date
  ) throws -> ChangeOutcome {
    let prunable = """
      select id from steadfast_task
      where queue = $1 and state = $2 and has_ended
        and (unique_until is null or unique_until <= $3) and not in_order and cause is null
      """
    var leaving: [TaskID] = []
    if let date {
      leaving += try database.ids(
        prunable + " and finished_date < $4",
        .text(queue),
        .text(state.rawValue),
        .date(now),
        .date(date)
      )
    }
    if let count {
      leaving += try database.ids(
        prunable + " order by finished_date desc, id desc offset $4",
        .text(queue),
        .text(state.rawValue),
        .date(now),
        .integer(count)
      )
    }
    // One statement for all tasks could exceed its time limit, or its space for locks and arrays.
    let slices = Array(Set(leaving)).sorted()
    for start in stride(from: 0, to: slices.count, by: Self.mostRemovals) {
      try removeTasks(Array(slices[start...].prefix(Self.mostRemovals)), endedAs: state)
    }
    return .done
  }

  /// Removes the given tasks that still have the state, and the tasks that were cancelled because
  /// of them.
  private func removeTasks(_ ids: [TaskID], endedAs state: TaskState) throws {
    guard !ids.isEmpty else { return }
    // Tasks that were cancelled because of these tasks may block other tasks with their order keys.
    let ordered = try database.ids(
      """
      \(Self.leaving)
      select id from steadfast_task
      where id = any (array(select id from leaving)) and order_key is not null
      """,
      .ids(ids)
    )
    if !ordered.isEmpty { try lockOrderKeys(of: ordered) }
    // Another session may have restarted some of the tasks since they were found.
    let leaving = try database.ids(
      """
      select id from steadfast_task where id = any ($1) and state = $2 and cause is null
      order by id for update skip locked
      """,
      .ids(ids),
      .text(state.rawValue)
    )
    _ = try removeWithCascade(leaving)
  }

  // MARK: Many tasks

  func unparkTasks(named name: String, in queue: String) throws -> ChangeOutcome {
    changedOrderKeys += try database.allRows(
      """
      with parked as (
        select id, \(Self.nextPosition) as place from (
          select id from steadfast_task
          where queue = $1 and name = $2 and state = 'parked' order by position for update
        ) as in_order
      )
      update steadfast_task as task set state = 'waiting', position = parked.place
      from parked where task.id = parked.id and task.id = any (array(select id from parked))
      returning task.order_key
      """,
      .text(queue),
      .text(name)
    ) { row in row.unlessNull(0, row.text) }.compactMap(\.self)
    return .done
  }

  /// Corrects the dates after the clock was set back: counts them from `now` if they were counted
  /// from a later date.
  ///
  /// This changes nothing if several stores may use the tables, because each machine may have its
  /// own clock.
  func rebase(to now: Date) throws -> ChangeOutcome {
    guard !isShared, try database.hasRow(Self.taskWithLaterDate, .date(now)) else { return .done }
    try database.send(Self.rebasing, .date(now))
    // A date that is before the creation of its task comes from a later task, which replaced the
    // content of this task. Such a date was counted from the creation of that later task.
    try database.send(
      """
      update steadfast_task set created_date = $1,
        unique_until = case when unique_until < created_date then unique_until
          else $1 + (unique_until - created_date) end,
        latest_date = case when latest_date < created_date then latest_date
          else $1 + (latest_date - created_date) end
      where created_date > $1
      """,
      .date(now)
    )
    try database.send(
      "update steadfast_task set failed_date = $1 where failed_date > $1 and not has_ended",
      .date(now)
    )
    return .done
  }

  /// Finds a task with a date that a rebase changes, in one pass over the table.
  private static let taskWithLaterDate = """
    select 1 from steadfast_task
    where created_date > $1
      or not has_ended and (counted_from > $1 or failed_date > $1)
    limit 1
    """

  /// Counts the available dates of tasks from `$1` again.
  ///
  /// A suspended task wakes instead, so that its handler can compute the date again.
  private static let rebasing = """
    with moved as (
      select id, \(nextPosition) as place from (
        select id from steadfast_task
        where not has_ended and coalesce(
          counted_from, case when available_date = created_date then created_date end) > $1
        order by position for update
      ) as in_order
    )
    update steadfast_task as task set
      available_date = case when state = 'suspended' then least(created_date, $1)
        else $1 + (available_date - coalesce(counted_from, created_date)) end,
      counted_from = case
        when state <> 'suspended' and counted_from is not null then $1::timestamptz end,
      put_off = put_off and state <> 'suspended',
      position = case when state in ('waiting', 'suspended') then moved.place else position end,
      state = case when state = 'suspended' then 'waiting' else state end
    from moved where task.id = moved.id and task.id = any (array(select id from moved))
    """
}

/// The memory of tasks, and the values of the store.
extension Tables {
  func remember(_ lease: Lease, named name: String, value: [UInt8]) throws -> ChangeOutcome {
    guard let entry = try entryToChange(lease) else { return .stale }
    try database.send(
      """
      insert into steadfast_memory (task_id, name, value) values ($1, $2, $3)
      on conflict (task_id, name) do update set value = excluded.value
      """,
      .id(entry.id),
      .text(name),
      .bytes(value)
    )
    try updateMemorySize(of: entry)
    try database.send(
      "update steadfast_task set interruption_count = 0 where id = $1",
      .id(entry.id)
    )
    return .done
  }

  private func updateMemorySize(of entry: TaskEntry) throws {
    try database.send(
      """
      update steadfast_task set memory_size = (
          select coalesce(sum(octet_length(name) + octet_length(value)), 0)
          from steadfast_memory where task_id = $1)
      where id = $1
      """,
      .id(entry.id)
    )
  }

  func suspend(
    _ lease: Lease,
    until date: Date,
    awaiting names: [String],
    countedFrom origin: Date?
  ) throws -> ChangeOutcome {
    guard let entry = try entryToChange(lease) else { return .stale }
    try database.send(
      """
      update steadfast_task set
        state = case when come.has_come then 'waiting' else 'suspended' end,
        available_date = case when come.has_come then created_date else $2 end,
        counted_from = case when come.has_come then null else $4::timestamptz end,
        interruption_count = 0, put_off = false, position = \(Self.nextPosition),
        lease_token = null, lease_end = null
      from (
        select exists (
          select 1 from steadfast_memory
          where task_id = $1 and name = any ($3) and octet_length(value) > 0) as has_come
      ) as come
      where id = $1
      """,
      .id(entry.id),
      .date(date),
      .texts(names),
      .date(origin)
    )
    return .done
  }

  func complete(_ id: TaskID, named name: String, value: [UInt8]) throws -> ChangeOutcome {
    guard let entry = try entryToChange(.unclaimed(id), in: TaskState.unfinished) else {
      return .stale
    }
    let filled = try database.run(
      """
      update steadfast_memory set value = $3
      where task_id = $1 and name = $2 and octet_length(value) = 0
      """,
      .id(id),
      .text(name),
      .bytes(value)
    )
    guard filled > 0 else { return .stale }
    try updateMemorySize(of: entry)
    guard entry.state == .suspended else { return .done }
    try move(entry, RowMove(to: .waiting, wakes: true))
    return .done
  }

  func removeMemory(of entry: TaskEntry) throws {
    guard entry.memorySize > 0 else { return }
    try database.send("delete from steadfast_memory where task_id = $1", .id(entry.id))
    try database.send("update steadfast_task set memory_size = 0 where id = $1", .id(entry.id))
  }

  // MARK: Values

  func setValue(_ bytes: [UInt8]?, named name: String) throws -> ChangeOutcome {
    if let bytes {
      try database.send(
        """
        insert into steadfast_value (name, bytes) values ($1, $2)
        on conflict (name) do update set bytes = excluded.bytes
        """,
        .text(name),
        .bytes(bytes)
      )
    } else {
      try database.send("delete from steadfast_value where name = $1", .text(name))
    }
    return .done
  }
}
#endif
