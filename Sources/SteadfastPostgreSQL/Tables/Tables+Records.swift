#if PostgreSQL
import SteadfastDatabases
import SteadfastQueue

/// Reading tasks.
extension Connection {
  private static let names = [
    "id", "name", "queue", "payload", "format", "schema_version", "priority", "created_date",
    "available_date", "max_retries", "uses_backoff", "unique_key", "key_role", "unique_until",
    "latest_date", "order_key", "holds_order", "conditions", "tags", "time_limit", "expiry_date",
    "state", "retry_count", "interruption_count", "last_error", "failed_date", "earlier_failures",
    "put_off", "memory_size", "finished_date", "dependency_rule", "follower", "cause",
    "name_count", "batch_total", "batch_succeeded", "batch_failed",
  ]

  /// The columns that `records(_:)` reads.
  static let columns = names.map { "task.\($0)" }.joined(separator: ", ")
  /// The number of the first column behind those.
  static let columnCount = Int32(names.count)

  /// Returns the tasks in rows, with what they wait for.
  ///
  /// - Throws: An ``UnreadableRow`` that names the task.
  func records(_ rows: Rows) throws -> [TaskRecord] {
    try rows.map(record)
  }

  /// Returns the task in a row, with what it waits for.
  ///
  /// - Throws: An ``UnreadableRow`` that names the task.
  func record(_ row: Row) throws -> TaskRecord {
    guard let id = row.id(0) else { throw UnreadableRow(column: "id") }
    do {
      return try record(id, row)
    } catch let unreadable as UnreadableRow {
      throw UnreadableRow(column: unreadable.column, id: id)
    } catch is Row.MalformedArray {
      throw UnreadableRow(column: "tags or conditions", id: id)
    }
  }

  private func record(_ id: TaskID, _ row: Row) throws -> TaskRecord {
    guard let format = StoredPayload.Format(rawValue: row.text(4)) else {
      throw UnreadableRow(column: "format")
    }
    let queue = row.text(2)
    return TaskRecord(
      id: id,
      name: row.text(1),
      payload: StoredPayload(row.bytes(3), format: format, version: row.integer(5)),
      priority: TaskQueue.Priority(rawValue: row.integer(6)),
      createdDate: row.date(7),
      maxRetries: row.ifAny(9) { .atMost(row.integer($0)) } ?? .alwaysRetry,
      usesBackoff: row.flag(10),
      uniqueKey: StoredKey.key(in: row.ifAny(11, row.text), of: queue),
      keyRole: row.ifAny(12, row.text).flatMap(UniqueKeyRole.init),
      uniqueUntil: row.ifAny(13, row.date),
      latestDate: row.ifAny(14, row.date),
      orderKey: StoredKey.key(in: row.ifAny(15, row.text), of: queue),
      holdsOrder: row.flag(16),
      conditions: Set(try row.texts(17).map(TaskCondition.init(rawValue:))),
      dependencies: try dependencies(of: id, row),
      queue: queue,
      tags: Set(try row.texts(18)),
      timeLimit: row.ifAny(19) { .microseconds(row.integer($0)) },
      expiryDate: row.ifAny(20, row.date),
      memorySize: row.integer(28),
      state: try row.state(21),
      availableDate: row.date(8),
      retryCount: row.integer(22),
      interruptionCount: row.integer(23),
      lastError: row.ifAny(24, row.text),
      failedDate: row.ifAny(25, row.date),
      earlierFailures: try StoredFailures.read(row.ifAny(26, row.text)),
      isPostponed: row.flag(27),
      finishedDate: row.ifAny(29, row.date)
    )
  }

  private func dependencies(of id: TaskID, _ row: Row) throws -> TaskDependencies? {
    guard let rule = DependencyRule(rawValue: row.text(30)) else {
      throw UnreadableRow(column: "dependency_rule")
    }
    var found = TaskDependencies(rule: rule, follower: row.id(31), cause: row.id(32))
    if !row.isNull(34) {
      found.batch = BatchProgress(
        total: row.integer(34),
        succeeded: row.integer(35),
        failed: row.integer(36)
      )
    }
    guard row.integer(33) > 0 || found.batch != nil else {
      return found == TaskDependencies() ? nil : found
    }
    let rows = try all(
      """
      select dependency, is_named, failed from steadfast_dependency
      where dependent = $1 and (is_named or failed is not null)
      """,
      .id(id)
    ) { row in (id: row.id(0), isNamed: row.flag(1), failed: row.ifAny(2, row.text)) }
    for row in rows {
      guard let id = row.id else { throw UnreadableRow(column: "dependency") }
      if row.isNamed { found.tasks.insert(id) }
      if let state = row.failed.flatMap(TaskState.init) { found.note(id, endedAs: state) }
    }
    return found
  }
}

extension Row {
  func state(_ column: Int32) throws -> TaskState {
    guard let state = TaskState(rawValue: text(column)) else {
      throw UnreadableRow(column: "state")
    }
    return state
  }
}
#endif
