#if PostgreSQL
import SteadfastDatabases
import SteadfastQueue

/// Insertions.
extension Tables {
  /// Compares the same properties as `TaskRecord.isStored(as:)`, with the dates as they are stored.
  func outcomeIfIDExists(_ record: TaskRecord, _ payload: [UInt8]) throws -> ChangeOutcome? {
    try database.first(
      """
      select name = $2 and queue = $3 and payload = $4 and format = $5 and schema_version = $6
        and created_date <= $7 and unique_key is not distinct from $8
        and order_key is not distinct from $9
      from steadfast_task where id = $1
      """,
      .id(record.id),
      .text(record.name),
      .text(record.queue),
      .bytes(payload),
      .text(record.payload.format.rawValue),
      .integer(record.payload.version),
      .date(record.createdDate),
      .text(StoredKey.string(for: record.uniqueKey, in: record.queue)),
      .text(StoredKey.string(for: record.orderKey, in: record.queue))
    ) { $0.flag(0) ? .done : .identityTaken }
  }

  func addRow(of record: TaskRecord, keyRole role: UniqueKeyRole?, payload: [UInt8]) throws -> Bool
  {
    let definition = Self.definitionValues(of: record, payload: payload, role: role)
    let values = definition + Self.progressValues(of: record)
    return try database.rows(Self.insertion, values).changedCount > 0
  }

  private static let insertion = """
    insert into steadfast_task (
      id, name, queue, payload, format, schema_version, priority, created_date, available_date,
      max_retries, uses_backoff, unique_key, key_role, unique_until, latest_date, order_key,
      order_number, holds_order, conditions, dependency_rule, follower, tags, time_limit,
      expiry_date, state, retry_count, interruption_count, last_error, failed_date,
      earlier_failures, put_off, finished_date, name_count, counted_from)
    values (
      $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16,
      case when $16::text is not null then \(nextPosition) end,
      $17, $18, $19, $20, $21, $22, $23, $24, $25, $26, $27, $28, $29, $30, $31, $32, $33)
    on conflict (id) do nothing
    """

  /// Returns the values of the columns that the caller of an insertion chooses, for `insertion`.
  private static func definitionValues(
    of record: TaskRecord,
    payload: [UInt8],
    role: UniqueKeyRole?
  ) -> [SQLValue] {
    [
      .id(record.id),
      .text(record.name),
      .text(record.queue),
      .bytes(payload),
      .text(record.payload.format.rawValue),
      .integer(record.payload.version),
      .integer(record.priority.rawValue),
      .date(record.createdDate),
      .date(record.availableDate),
      .limit(record.maxRetries),
      .flag(record.usesBackoff),
      .text(StoredKey.string(for: record.uniqueKey, in: record.queue)),
      .text(role?.rawValue),
      .date(record.uniqueUntil),
      .date(record.latestDate),
      .text(StoredKey.string(for: record.orderKey, in: record.queue)),
      .flag(record.blocksOrderOnFailure),
      .texts(record.conditions.map(\.rawValue)),
      .text(record.dependencies.rule.rawValue),
      .id(record.dependencies.follower),
      .texts(record.tags),
      .duration(record.timeLimit),
      .date(record.expiryDate),
    ]
  }

  /// Returns the values of the remaining columns: the task's state and history.
  private static func progressValues(of record: TaskRecord) -> [SQLValue] {
    [
      .text(record.state.rawValue),
      .integer(record.retryCount),
      .integer(record.interruptionCount),
      .text(record.lastError),
      .date(record.failedDate),
      .text(StoredFailures.json(of: record.earlierFailures)),
      .flag(record.isPostponed),
      .date(record.finishedDate),
      .integer(record.dependencies.tasks.count),
      .date(record.explicitOrigin),
    ]
  }

  // MARK: Unique keys

  /// Returns the tasks that hold or await the unique key of a new task, and locks their rows.
  func twins(of record: TaskRecord, _ key: String) throws -> [UniqueKeyRole: KeyTwin] {
    let found = try database.allRows(
      """
      select id, key_role, state, coalesce(unique_until > $3, false), memory_size,
        state <> 'running' and coalesce(expiry_date <= $3, false)
      from steadfast_task
      where name = $1 and unique_key = $2 and key_role is not null order by key_role for update
      """,
      .text(record.name),
      .text(key),
      .date(record.createdDate),
      read: KeyTwin.read
    )
    return Dictionary(found) { first, _ in first }
  }

  func removeKeyRolesOfExpiredTasks(withKeyOf record: TaskRecord, _ key: String) throws {
    // A successor without a key role can be claimed.
    hasFreedOthers = true
    try database.send(
      """
      update steadfast_task set key_role = null
      where name = $1 and unique_key = $2 and key_role is not null
        and state <> 'running' and expiry_date <= $3
      """,
      .text(record.name),
      .text(key),
      .date(record.createdDate)
    )
  }

  func succeededTwin(of record: TaskRecord, _ key: String) throws -> TaskID? {
    try database.ids(
      """
      select id from steadfast_task
      where name = $1 and unique_key = $2 and state = 'succeeded' and unique_until > $3
      order by unique_until desc, id desc limit 1
      """,
      .text(record.name),
      .text(key),
      .date(record.createdDate)
    ).first
  }

  private static let contentReplacement = """
    update steadfast_task set payload = $2, format = $3, schema_version = $4,
      priority = $5, max_retries = $6, uses_backoff = $7,
      tags = $8, time_limit = $9, expiry_date = $10, conditions = $15,
      unique_until = $11, latest_date = coalesce(latest_date, $12),
      state = case when state in ('parked', 'suspended') then 'waiting' else state end,
      available_date = case
        when put_off then greatest(available_date, $13)
        when $13 <= $14::timestamptz then least($13,
          case when state = 'suspended' then created_date else available_date end)
        else least($13, coalesce(latest_date, $12, $13)) end,
      counted_from = case
        when put_off then case when available_date < $13 then $16 else counted_from end
        when $13 > $14 then
          case when coalesce(latest_date, $12, $13) < $13 then created_date else $16 end
        when $13 < case when state = 'suspended' then created_date else available_date end
          then $16
        when state <> 'suspended' then counted_from end,
      position = case
        when state in ('parked', 'suspended') or priority <> $5 then \(nextPosition)
        when put_off and available_date >= $13 then position
        when not put_off and $13 <= $14 and available_date <= $13 then position
        when not put_off and $13 > $14
          and available_date = least($13, coalesce(latest_date, $12, $13)) then position
        else \(nextPosition) end
    where id = $1
    """

  func replaceContent(of twin: TaskID, with new: TaskRecord, payload: [UInt8]) throws {
    // The existing task may become available earlier, or have another priority.
    hasFreedOthers = true
    try database.send(
      Self.contentReplacement,
      .id(twin),
      .bytes(payload),
      .text(new.payload.format.rawValue),
      .integer(new.payload.version),
      .integer(new.priority.rawValue),
      .limit(new.maxRetries),
      .flag(new.usesBackoff),
      .texts(new.tags),
      .duration(new.timeLimit),
      .date(new.expiryDate),
      .date(new.uniqueUntil),
      .date(new.latestDate),
      .date(new.availableDate),
      .date(new.createdDate),
      .texts(new.conditions.map(\.rawValue)),
      .date(new.countedFrom)
    )
  }
}
#endif
