#if SQLite
import SteadfastDatabases
import SteadfastQueue

/// Insertions.
extension Tables {
  /// The largest payload, in bytes, that is stored in the row of its task.
  ///
  /// Each change of a task rewrites its row, so a larger payload has a separate row.
  static let longestInnerPayload = 2_048

  func outcomeIfIDExists(_ record: TaskRecord, _ payload: [UInt8]) throws -> ChangeOutcome? {
    guard let stored = try database.record(of: record.id) else { return nil }
    return record.isStored(as: stored) ? .done : .identityTaken
  }

  private static let insertion = """
    insert into steadfast_task (
      id, name, queue, payload, format, schema_version, priority, created_date, available_date,
      max_retries, uses_backoff, unique_key, key_role, unique_until, latest_date, order_key,
      order_number, holds_order, conditions, dependency_rule, follower, tags, time_limit,
      expiry_date, state, retry_count, interruption_count, last_error, failed_date,
      earlier_failures, put_off, finished_date, name_count, counted_from)
    values (
      ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16,
      case when ?16 is not null then \(nextPosition) end,
      ?17, ?18, ?19, ?20, ?21, ?22, ?23, ?24, ?25, ?26, ?27, ?28, ?29, ?30, ?31, ?32, ?33)
    on conflict (id) do nothing
    """

  func addRow(of record: TaskRecord, keyRole role: UniqueKeyRole?, payload: [UInt8]) throws -> Bool
  {
    let inner = Self.innerPayload(payload)
    let definition = Self.definitionValues(
      of: record,
      payload: inner,
      role: .text(role?.rawValue),
      link: .id(record.dependencies.follower)
    )
    let values = definition + Self.progressValues(of: record)
    guard try database.run(Self.insertion, values) > 0 else { return false }
    if case .null = inner { try setOuterPayload(payload, of: record.id) }
    return true
  }

  /// Returns the values of the columns that the caller of an insertion chooses.
  ///
  /// The view and the table differ in two of these columns, for which the arguments `role` and
  /// `link` are the values. `role` comes after the unique key, and `link` after the dependency
  /// rule.
  static func definitionValues(
    of record: TaskRecord,
    payload: SQLValue,
    role: SQLValue,
    link: SQLValue
  ) -> [SQLValue] {
    [
      .id(record.id),
      .text(record.name),
      .text(record.queue),
      payload,
      .text(record.payload.format.rawValue),
      .integer(record.payload.version),
      .integer(record.priority.rawValue),
      .date(record.createdDate),
      .date(record.availableDate),
      .limit(record.maxRetries),
      .flag(record.usesBackoff),
      .text(StoredKey.string(for: record.uniqueKey, in: record.queue)),
      role,
      .date(record.uniqueUntil),
      .date(record.latestDate),
      .text(StoredKey.string(for: record.orderKey, in: record.queue)),
      .flag(record.blocksOrderOnFailure),
      .texts(record.conditions.map(\.rawValue)),
      .text(record.dependencies.rule.rawValue),
      link,
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

  /// Returns the payload for the row of the task; null if the payload needs a separate row.
  static func innerPayload(_ payload: [UInt8]) -> SQLValue {
    payload.count <= longestInnerPayload ? .bytes(payload) : .null
  }

  /// Replaces the separate row of a task's payload, if the new payload needs one; otherwise,
  /// removes it.
  func setOuterPayload(_ payload: [UInt8], of id: TaskID) throws {
    try database.run("delete from steadfast_payload where task_id = ?1", .id(id))
    guard payload.count > Self.longestInnerPayload else { return }
    try database.run("insert into steadfast_payload values (?1, ?2)", .id(id), .bytes(payload))
  }

  // MARK: Unique keys

  func twins(of record: TaskRecord, _ key: String) throws -> [UniqueKeyRole: KeyTwin] {
    let found = try database.allRows(
      """
      select id, key_role, state, coalesce(unique_until > ?3, 0), memory_size,
        state <> 'running' and coalesce(expiry_date <= ?3, 0)
      from steadfast_task
      where name = ?1 and unique_key = ?2 and key_role is not null
      """,
      .text(record.name),
      .text(key),
      .date(record.createdDate),
      read: KeyTwin.read
    )
    return Dictionary(found) { first, _ in first }
  }

  func removeKeyRolesOfExpiredTasks(withKeyOf record: TaskRecord, _ key: String) throws {
    try database.run(
      """
      update steadfast_task set key_role = null
      where name = ?1 and unique_key = ?2 and key_role is not null
        and state <> 'running' and expiry_date <= ?3
      """,
      .text(record.name),
      .text(key),
      .date(record.createdDate)
    )
  }

  static let succeededTwin = """
    select id from steadfast_task indexed by steadfast_recent
    where name = ?1 and unique_key = ?2 and state = 'succeeded' and unique_until > ?3
    order by unique_until desc, id desc limit 1
    """

  func succeededTwin(of record: TaskRecord, _ key: String) throws -> TaskID? {
    try database.first(
      Self.succeededTwin,
      .text(record.name),
      .text(key),
      .date(record.createdDate)
    ) { $0.id(0) } ?? nil
  }

  private static let contentReplacement = """
    update steadfast_task set payload = ?2, format = ?3, schema_version = ?4,
      priority = ?5, max_retries = ?6, uses_backoff = ?7,
      tags = ?8, time_limit = ?9, expiry_date = ?10, conditions = ?15,
      unique_until = ?11, latest_date = coalesce(latest_date, ?12),
      state = case when state in ('parked', 'suspended') then 'waiting' else state end,
      available_date = case
        when put_off then max(available_date, ?13)
        when ?13 <= ?14 then min(?13,
          case when state = 'suspended' then created_date else available_date end)
        else min(?13, coalesce(latest_date, ?12, ?13)) end,
      counted_from = case
        when put_off then case when available_date < ?13 then ?16 else counted_from end
        when ?13 > ?14 then
          case when coalesce(latest_date, ?12, ?13) < ?13 then created_date else ?16 end
        when ?13 < case when state = 'suspended' then created_date else available_date end
          then ?16
        when state <> 'suspended' then counted_from end,
      seq = case
        when state in ('parked', 'suspended') or priority <> ?5 then \(nextPosition)
        when put_off and available_date >= ?13 then seq
        when not put_off and ?13 <= ?14 and available_date <= ?13 then seq
        when not put_off and ?13 > ?14
          and available_date = min(?13, coalesce(latest_date, ?12, ?13)) then seq
        else \(nextPosition) end
    where id = ?1
    """

  func replaceContent(of twin: TaskID, with new: TaskRecord, payload: [UInt8]) throws {
    try database.run(
      Self.contentReplacement,
      .id(twin),
      Self.innerPayload(payload),
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
    try setOuterPayload(payload, of: twin)
  }
}
#endif
