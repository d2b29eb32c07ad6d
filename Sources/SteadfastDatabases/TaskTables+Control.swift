import SteadfastQueue
package import SystemFoundation

/// Changes to tasks that are not claimed.
extension TaskTables {
  func update(_ id: TaskID, with update: TaskUpdate, payload: [UInt8]) throws -> ChangeOutcome {
    guard let entry = try entryToChange(.unclaimed(id), in: TaskState.unclaimed), !entry.isDisplaced
    else { return .stale }
    try database.send(
      """
      update steadfast_task set
        payload = case when $3::text is not null then $2 else payload end,
        format = coalesce($3, format), schema_version = coalesce($4, schema_version),
        max_retries = case when $5::boolean then $6 else max_retries end,
        uses_backoff = coalesce($7, uses_backoff), time_limit = coalesce($8, time_limit),
        expiry_date = coalesce($9, expiry_date),
        tags = case when $10::boolean then $11 else tags end,
        metadata = case when $13::boolean then $14::text::jsonb else metadata end,
        position = case when $12 <> priority then nextval('steadfast_place') else position end,
        priority = coalesce($12, priority)
      where id = $1
      """,
      .id(id),
      Self.rowPayload(payload),
      .text(update.payload?.format.rawValue),
      .integer(update.payload?.version),
      .flag(update.maxRetries != nil),
      .limit(update.maxRetries),
      .flag(update.usesBackoff),
      .duration(update.timeLimit),
      .date(update.expiryDate),
      .flag(update.tags != nil),
      .texts(update.tags ?? []),
      .integer(update.priority?.rawValue),
      .flag(update.metadata != nil),
      StoredMetadata.value(of: update.metadata ?? [:])
    )
    if update.payload != nil { try replaceLongPayload(payload, of: id) }
    return .done
  }

  /// Makes tasks wait like new tasks, at the ends of their lanes, in the order of the list.
  func restartTasks(_ ids: [TaskID], at date: Date) throws {
    try database.send(TaskStatements.restart, forEach: ids, .date(date))
  }

  /// Returns the task that holds a unique key among the tasks with a name.
  func holder(ofKey key: String, taskName name: String) throws -> TaskID? {
    try database.ids(
      """
      select id from steadfast_task where name = $1 and unique_key = $2 and key_role = 'holder'
      """,
      .text(name),
      .text(key)
    ).first
  }

  func unparkTasks(
    named name: String,
    in queue: String,
    below version: Int?
  ) throws -> ChangeOutcome {
    let found = try database.allRows(
      """
      select id, order_key from steadfast_task
      where queue = $1 and name = $2 and state = 'parked'
        and ($3::bigint is null or parked_version < $3)
      order by position for update
      """,
      .text(queue),
      .text(name),
      .integer(version)
    ) { row in (id: row.id(0), orderKey: row.unlessNull(1, row.text)) }
    try database.send(TaskStatements.unpark, forEach: found.compactMap(\.id))
    changedOrderKeys += found.compactMap(\.orderKey)
    return .done
  }

  // MARK: Removals

  func remove(_ id: TaskID) throws -> ChangeOutcome {
    guard let entry = try entryToChange(.unclaimed(id), in: TaskState.ended) else { return .stale }
    let along = try removeWithCascade([id])
    guard entry.affectsOtherTasks else { return .done }
    return .doneWithConsequences(Consequences(tasks: along))
  }

  /// Removes tasks, and the tasks that were cancelled because of them.
  ///
  /// - Returns: The removed tasks that are not in `ids`.
  private func removeWithCascade(_ ids: [TaskID]) throws -> [TaskID] {
    let leaving = try database.allRows(TaskStatements.leavingTasks, forEach: ids) { row in
      (id: row.id(0), orderKey: row.unlessNull(1, row.text))
    }
    changedOrderKeys += leaving.compactMap(\.orderKey)
    let all = leaving.compactMap(\.id)
    try delete(all)
    let named = Set(ids)
    return all.filter { !named.contains($0) }
  }

  /// Removes tasks from all tables.
  func delete(_ ids: [TaskID]) throws {
    if Self.longestInnerPayload < .max {
      try database.send("delete from steadfast_payload where task_id = any ($1)", forEach: ids)
    }
    try database.send("delete from steadfast_dependency where dependent = any ($1)", forEach: ids)
    try database.send(TaskStatements.memoryDeletion, forEach: ids)
    try database.send("delete from steadfast_task where id = any ($1)", forEach: ids)
  }

  func prune(
    _ state: TaskState,
    in queue: String,
    endedBefore date: Date?,
    keepingLatest count: Int?,
    now: Date
  ) throws -> ChangeOutcome {
    let common: [SQLValue] = [.text(queue), .text(state.rawValue), .date(now)]
    var leaving: Set<TaskID> = []
    func find(_ sql: String, _ value: SQLValue) throws {
      leaving.formUnion(try database.allRows(sql, common + [value]) { $0.id(0) }.compactMap(\.self))
    }
    if let date { try find(TaskStatements.prunableByDate, .date(date)) }
    if let count { try find(TaskStatements.prunableByCount, .integer(count)) }
    // One statement for all tasks could exceed its time limit, or its space for locks and arrays.
    let ids = leaving.sorted()
    for start in stride(from: 0, to: ids.count, by: 1_000) {
      let slice = Array(ids[start...].prefix(1_000))
      _ = try removeWithCascade(lockForRemoval(slice, endedAs: state))
    }
    return .done
  }

  // MARK: A clock that was set back

  /// Corrects the dates of tasks after the clock was set back: counts them from `now` if they were
  /// counted from a later date.
  package func rebaseDates(to now: Date) throws {
    // This finds a task with a date that changes, in one pass over the table.
    let hasLaterDate = try database.hasRow(
      """
      select 1 from steadfast_task
      where created_date > $1
        or not has_ended and (counted_from > $1 or failed_date > $1)
      limit 1
      """,
      .date(now)
    )
    guard hasLaterDate else { return }
    let found = try database.ids(
      """
      select id from steadfast_task
      where not has_ended and coalesce(
        counted_from, case when available_date = created_date then created_date end) > $1
      order by position for update
      """,
      .date(now)
    )
    try database.send(TaskStatements.rebase, forEach: found, .date(now))
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
  }
}

extension TaskStatements {
  /// The start of a statement that gives each task in `$1` the next position, in the order of the
  /// list.
  private static let places = """
    with listed as /*-*/materialized /*-*/(
      select id, nextval('steadfast_place') as place from (
        select unnest($1::uuid[]) as id
      ) as given
    )
    """
  private static let isListed = """
    from listed where task.id = listed.id/*-*/ and task.id = any ($1)/*-*/
    """

  package static let restart = """
    \(places)
    update steadfast_task as task set state = 'waiting', available_date = $2, counted_from = $2,
      retry_count = 0, interruption_count = 0, put_off = false,
      last_error = null, failed_date = null, failed_attempt = null, earlier_failures = null,
      finished_date = null,
      expiry_date = case when expiry_date <= $2 then null else expiry_date end,
      key_role = case when unique_key is not null then coalesce(key_role, 'holder') end,
      cause = null, position = listed.place, lease_token = null, lease_end = null, command = null
    \(isListed)
    """

  fileprivate static let unpark = """
    \(places)
    update steadfast_task as task set state = 'waiting', position = listed.place
    \(isListed)
    """

  /// Counts the available dates of tasks from `$2` again.
  ///
  /// A suspended task wakes instead, so that its handler can compute the date again.
  fileprivate static let rebase = """
    \(places)
    update steadfast_task as task set
      available_date = case when state = 'suspended' then least(created_date, $2)
        else $2 + (available_date - coalesce(counted_from, created_date)) end,
      counted_from = case
        when state <> 'suspended' and counted_from is not null then $2::timestamptz end,
      put_off = put_off and state <> 'suspended',
      position = case when state in ('waiting', 'suspended') then listed.place else position end,
      state = case when state = 'suspended' then 'waiting' else state end
    \(isListed)
    """

  /// The tasks in `$1`, and the tasks that were cancelled because of them.
  package static let leaving = """
    with recursive leaving (id) as (
      select unnest($1::uuid[])
      union
      select task.id from leaving
      cross join /*-*/lateral (select * from /*-*/steadfast_task as task
        where task.cause = leaving.id/*-*/ offset 0) as task/*-*/
    )
    """

  package static let leavingTasks = """
    \(leaving)
    select id, order_key from steadfast_task
    where id = any (array(select id from leaving)) order by id for update
    """

  private static let prunable = """
    select id from steadfast_task
    where queue = $1 and state = $2 and has_ended
      and (unique_until is null or unique_until <= $3) and not in_order and cause is null
    """

  fileprivate static let prunableByDate = "\(prunable) and finished_date < $4"

  fileprivate static let prunableByCount =
    "\(prunable) order by finished_date desc, id desc /*sqlite limit -1 */ offset $4"
}
