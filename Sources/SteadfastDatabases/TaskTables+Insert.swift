package import SteadfastQueue

/// Insertions.
extension TaskTables {
  func insert(
    _ record: TaskRecord,
    onDuplicate policy: UniquePolicy,
    payload: [UInt8]
  ) throws -> ChangeOutcome {
    var role: UniqueKeyRole?
    let key = StoredKey.string(for: record.uniqueKey, in: record.queue)
    let takesKey = key != nil && !record.state.isFinished
    if takesKey || !record.dependencies.tasks.isEmpty,
      let sent = try outcomeIfIDExists(record, payload)
    {
      return sent
    }
    if takesKey, let key {
      switch try resolveUniqueKey(of: record, key: key, onDuplicate: policy, payload: payload) {
      case .role(let decided): role = decided
      case .outcome(let outcome): return outcome
      }
    }
    guard try addRow(of: record, keyRole: role, payload: payload) else {
      return try outcomeIfIDExists(record, payload) ?? .identityTaken
    }
    if let key = StoredKey.string(for: record.orderKey, in: record.queue) {
      changedOrderKeys.append(key)
    }
    if record.dependencies.follower != nil { newMembers.append(record.id) }
    guard !record.dependencies.tasks.isEmpty else { return .done }
    return try storeDependencies(record.dependencies, of: record)
  }

  /// Returns the outcome of an insertion if a task already has the ID of the new task; `nil` if no
  /// task has the ID.
  ///
  /// Compares the same properties as `TaskRecord.isStored(as:)`, with the dates as they are stored.
  private func outcomeIfIDExists(_ record: TaskRecord, _ payload: [UInt8]) throws -> ChangeOutcome?
  {
    try database.first(
      """
      select name = $2 and queue = $3
        and /*sqlite coalesce( */payload/*sqlite ,
          (select bytes from steadfast_payload where task_id = $1)) */ = $4
        and format = $5 and schema_version = $6 and created_date <= $7
        and unique_key is not distinct from $8 and order_key is not distinct from $9
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

  /// Adds the row of a new task, unless another task has its ID.
  ///
  /// - Returns: Whether the row was added.
  private func addRow(
    of record: TaskRecord,
    keyRole role: UniqueKeyRole?,
    payload: [UInt8]
  ) throws -> Bool {
    let definition = record.definitionValues(
      payload: Self.rowPayload(payload),
      role: .text(role?.rawValue),
      link: .id(record.dependencies.follower)
    )
    let count = try database.run(TaskStatements.insertion, definition + record.progressValues)
    guard count > 0 else { return false }
    try addLongPayload(payload, of: record.id)
    return true
  }

  // MARK: Unique keys

  /// Decides which key role a new task gets, or with which outcome the task is not added.
  ///
  /// If the policy is `replace`, this may also replace the content of an existing task with the
  /// key.
  private func resolveUniqueKey(
    of record: TaskRecord,
    key: String,
    onDuplicate policy: UniquePolicy,
    payload: [UInt8]
  ) throws -> KeyDecision {
    let all = try twins(of: record, key)
    let twins = all.filter { !$0.value.hasExpired }
    guard let last = twins[.successor] ?? twins[.holder] else {
      let recent = policy == .replace ? nil : try succeededTwin(of: record, key)
      if let recent { return .outcome(.duplicate(of: recent)) }
      if !all.isEmpty { try removeKeyRolesOfExpiredTasks(withKeyOf: record, key) }
      return .role(.holder)
    }
    if policy == .reject || policy == .join {
      return .outcome(.duplicate(of: (twins[.holder] ?? last).id))
    }
    if twins[.successor] == nil {
      let begins = policy == .replace || !last.isRecent
      if last.state == .running && begins || policy == .replace && last.memorySize > 0 {
        if all[.successor] != nil { try removeKeyRolesOfExpiredTasks(withKeyOf: record, key) }
        return .role(.successor)
      }
    }
    guard policy == .replace else { return .outcome(.duplicate(of: last.id)) }
    try replaceContent(of: last.id, with: record, payload: payload)
    return .outcome(.replaced(last.id))
  }

  /// Returns the tasks that hold or await the unique key of a new task.
  private func twins(of record: TaskRecord, _ key: String) throws -> [UniqueKeyRole: KeyTwin] {
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
      read: readTwin
    )
    return Dictionary(found) { first, _ in first }
  }

  private func readTwin(_ row: Database.ResultRow) throws -> (UniqueKeyRole, KeyTwin) {
    guard let id = row.id(0), let role = UniqueKeyRole(rawValue: row.text(1)) else {
      throw UnreadableRow(column: "key_role", id: row.id(0))
    }
    let twin = KeyTwin(
      id: id,
      state: try row.state(2),
      isRecent: row.flag(3),
      memorySize: row.integer(4),
      hasExpired: row.flag(5)
    )
    return (role, twin)
  }

  /// Removes the key roles of the expired tasks that have the unique key of a new task.
  private func removeKeyRolesOfExpiredTasks(withKeyOf record: TaskRecord, _ key: String) throws {
    // A successor without a key role can be claimed.
    recordFreedTasks()
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

  /// Returns the succeeded task that a new task duplicates; `nil` if there is none.
  private func succeededTwin(of record: TaskRecord, _ key: String) throws -> TaskID? {
    try database.ids(
      TaskStatements.succeededTwin,
      .text(record.name),
      .text(key),
      .date(record.createdDate)
    ).first
  }

  /// Gives the content of a new task to an existing task with the same unique key.
  private func replaceContent(of twin: TaskID, with new: TaskRecord, payload: [UInt8]) throws {
    // The existing task may become available earlier, or have another priority.
    recordFreedTasks()
    try database.send(
      TaskStatements.contentReplacement,
      .id(twin),
      Self.rowPayload(payload),
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
      .date(new.countedFrom),
      StoredMetadata.value(of: new.metadata)
    )
    try replaceLongPayload(payload, of: twin)
  }
}

private enum KeyDecision {
  case role(UniqueKeyRole)
  case outcome(ChangeOutcome)
}

/// The task that holds a unique key, or the successor, which waits for the key.
private struct KeyTwin {
  let id: TaskID
  let state: TaskState
  /// Whether the task's key was still unique when the new task was created.
  let isRecent: Bool
  let memorySize: Int
  /// Whether the task is not running, and had expired when the new task was created.
  let hasExpired: Bool
}

extension TaskRecord {
  /// Returns the values of the columns from `id` to `uses_backoff`, with which each insertion
  /// begins.
  package func firstValues(payload: SQLValue) -> [SQLValue] {
    [
      .id(id),
      .text(name),
      .text(queue),
      payload,
      .text(self.payload.format.rawValue),
      .integer(self.payload.version),
      .integer(priority.rawValue),
      .date(createdDate),
      .date(availableDate),
      .limit(maxRetries),
      .flag(usesBackoff),
    ]
  }

  /// Returns the values of the columns that the caller of an insertion chooses.
  ///
  /// A table differs from an insertion by a statement in two of these columns, for which the
  /// arguments `role` and `link` are the values. `role` comes after the unique key, and `link`
  /// after the dependency rule.
  package func definitionValues(payload: SQLValue, role: SQLValue, link: SQLValue) -> [SQLValue] {
    firstValues(payload: payload) + [
      .text(StoredKey.string(for: uniqueKey, in: queue)),
      role,
      .date(uniqueUntil),
      .date(latestDate),
      .text(StoredKey.string(for: orderKey, in: queue)),
      .flag(blocksOrderOnFailure),
      .texts(conditions.map(\.rawValue)),
      .text(dependencies.rule.rawValue),
      link,
      .texts(tags),
      .duration(timeLimit),
      .date(expiryDate),
    ]
  }

  /// The values of the remaining columns: the task's state and history.
  fileprivate var progressValues: [SQLValue] {
    [
      .text(state.rawValue),
      .integer(retryCount),
      .integer(interruptionCount),
      .text(lastError),
      .date(failedDate),
      .text(StoredFailures.json(of: earlierFailures)),
      .flag(isPostponed),
      .date(finishedDate),
      .integer(dependencies.tasks.count),
      .date(explicitOrigin),
      StoredMetadata.value(of: metadata),
      StoredVersion.integer(for: parkedVersion),
      .text(failedAttempt?.text),
    ]
  }
}

extension TaskStatements {
  fileprivate static let insertion = """
    insert into steadfast_task (
      id, name, queue, payload, format, schema_version, priority, created_date, available_date,
      max_retries, uses_backoff, unique_key, key_role, unique_until, latest_date, order_key,
      order_number, holds_order, conditions, dependency_rule, follower, tags, time_limit,
      expiry_date, state, retry_count, interruption_count, last_error, failed_date,
      earlier_failures, put_off, finished_date, name_count, counted_from, metadata,
      parked_version, failed_attempt)
    values (
      $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16,
      case when $16::text is not null then nextval('steadfast_place') end,
      $17, $18, $19, $20, $21, $22, $23, $24, $25, $26, $27, $28, $29, $30, $31, $32, $33,
      $34::text::jsonb, $35, $36)
    on conflict (id) do nothing
    """

  package static let succeededTwin = """
    select id from steadfast_task /*sqlite indexed by steadfast_recent */
    where name = $1 and unique_key = $2 and state = 'succeeded' and unique_until > $3
    order by unique_until desc, id desc limit 1
    """

  fileprivate static let contentReplacement = """
    update steadfast_task set payload = $2, format = $3, schema_version = $4,
      priority = $5, max_retries = $6, uses_backoff = $7,
      tags = $8, time_limit = $9, expiry_date = $10, conditions = $15,
      metadata = $17::text::jsonb, command = null,
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
        when state in ('parked', 'suspended') or priority <> $5
          then nextval('steadfast_place')
        when put_off and available_date >= $13 then position
        when not put_off and $13 <= $14 and available_date <= $13 then position
        when not put_off and $13 > $14
          and available_date = least($13, coalesce(latest_date, $12, $13)) then position
        else nextval('steadfast_place') end
    where id = $1
    """
}
