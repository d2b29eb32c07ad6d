package import SteadfastQueue
package import SystemFoundation

/// A row of a statement's result, whose columns are numbered from 0.
package protocol TaskRow {
  func isNull(_ column: Int32) -> Bool
  /// The integer in a column; 0 if the column is null.
  func int64(_ column: Int32) -> Int64
  /// The integer in a column, clamped to the range of `Int`; 0 if the column is null.
  func integer(_ column: Int32) -> Int
  func flag(_ column: Int32) -> Bool
  func text(_ column: Int32) -> String
  func bytes(_ column: Int32) -> [UInt8]
  /// The ID in a column; `nil` if the column is null.
  func id(_ column: Int32) -> TaskID?
  func date(_ column: Int32) -> Date
  /// The strings in a column that stores an array; empty if the column is null.
  ///
  /// - Throws: An ``UnreadableRow`` if the column is not an array of strings.
  func strings(_ column: Int32) throws -> [String]
}

extension TaskRow {
  /// Returns the result of `read` for a column; `nil` if the column is null.
  package func unlessNull<T>(_ column: Int32, _ read: (Int32) throws -> T) rethrows -> T? {
    isNull(column) ? nil : try read(column)
  }

  package func state(_ column: Int32) throws -> TaskState {
    guard let state = TaskState(rawValue: text(column)) else {
      throw UnreadableRow(column: "state")
    }
    return state
  }

  package func token(_ column: Int32) -> UInt64? {
    unlessNull(column) { UInt64(bitPattern: int64($0)) }
  }
}

/// The columns from which ``TaskRow/record(_:)`` reads a task, in that order.
package enum TaskColumns {
  package static let names = [
    "id", "name", "queue", "payload", "format", "schema_version", "priority", "created_date",
    "available_date", "max_retries", "uses_backoff", "unique_key", "key_role", "unique_until",
    "latest_date", "order_key", "holds_order", "conditions", "tags", "time_limit", "expiry_date",
    "state", "retry_count", "interruption_count", "last_error", "failed_date", "earlier_failures",
    "put_off", "memory_size", "finished_date", "dependency_rule", "follower", "cause",
    "name_count", "batch_total", "batch_succeeded", "batch_failed", "counted_from", "metadata",
    "parked_version", "claim_holder", "claim_date", "lease_end", "command",
    "failed_attempt",
  ]

  /// The number of columns, which is also the number of the first column after them.
  package static let count = Int32(names.count)
}

/// A dependency of a task: another task for which the task waits, or a member of the task's batch.
///
/// The columns of the row are the ID of the dependency, whether the task names that ID itself, and
/// the state in which the dependency failed.
struct StoredDependency {
  fileprivate let id: TaskID?
  fileprivate let isNamed: Bool
  fileprivate let failed: String?

  init(_ row: some TaskRow) {
    id = row.id(0)
    isNamed = row.flag(1)
    failed = row.unlessNull(2, row.text)
  }
}

extension TaskRow {
  /// Returns the task in a row of ``TaskColumns``.
  ///
  /// `lookUpDependencies` returns the dependencies of the task with an ID, and is called only for a
  /// task that has dependencies.
  ///
  /// - Throws: An ``UnreadableRow`` that names the task.
  func record(
    _ lookUpDependencies: (TaskID) throws -> [StoredDependency]
  ) throws -> TaskRecord {
    guard let id = id(0) else { throw UnreadableRow(column: "id") }
    do {
      return try record(id: id, dependencies: dependencies(of: id, lookUp: lookUpDependencies))
    } catch let unreadable as UnreadableRow {
      throw UnreadableRow(column: unreadable.column, id: id)
    }
  }

  private func record(id: TaskID, dependencies: TaskDependencies?) throws -> TaskRecord {
    guard let format = StoredPayload.Format(rawValue: text(4)) else {
      throw UnreadableRow(column: "format")
    }
    let queue = text(2)
    return TaskRecord(
      id: id,
      name: text(1),
      payload: StoredPayload(bytes(3), format: format, version: integer(5)),
      priority: TaskQueue.Priority(rawValue: integer(6)),
      createdDate: date(7),
      maxRetries: unlessNull(9) { .atMost(integer($0)) } ?? .alwaysRetry,
      usesBackoff: flag(10),
      uniqueKey: StoredKey.key(in: unlessNull(11, text), of: queue),
      keyRole: unlessNull(12, text).flatMap(UniqueKeyRole.init),
      uniqueUntil: unlessNull(13, date),
      latestDate: unlessNull(14, date),
      orderKey: StoredKey.key(in: unlessNull(15, text), of: queue),
      blocksOrderOnFailure: flag(16),
      conditions: Set(try strings(17).map(TaskCondition.init(rawValue:))),
      dependencies: dependencies,
      queue: queue,
      tags: Set(try strings(18)),
      metadata: try StoredMetadata.read(unlessNull(38, text)),
      timeLimit: unlessNull(19) { .microseconds(int64($0)) },
      expiryDate: unlessNull(20, date),
      memorySize: integer(28),
      state: try state(21),
      availableDate: date(8),
      countedFrom: unlessNull(37, date),
      retryCount: integer(22),
      interruptionCount: integer(23),
      lastError: unlessNull(24, text),
      failedDate: unlessNull(25, date),
      failedAttempt: unlessNull(44, text).map(FailedAttempt.init(text:)),
      earlierFailures: try StoredFailures.read(unlessNull(26, text)),
      parkedVersion: StoredVersion.version(in: integer(39)),
      claim: unlessNull(41) { claimed in
        TaskClaim(
          holder: unlessNull(40, text) ?? "",
          date: date(claimed),
          endDate: unlessNull(42, date)
        )
      },
      command: unlessNull(43, text).flatMap(StoredCommand.init),
      isPostponed: flag(27),
      finishedDate: unlessNull(29, date)
    )
  }

  private func dependencies(
    of id: TaskID,
    lookUp: (TaskID) throws -> [StoredDependency]
  ) throws -> TaskDependencies? {
    guard let rule = DependencyRule(rawValue: text(30)) else {
      throw UnreadableRow(column: "dependency_rule")
    }
    var found = TaskDependencies(rule: rule, follower: self.id(31), cause: self.id(32))
    if !isNull(34) {
      found.batch = BatchProgress(
        total: integer(34),
        succeeded: integer(35),
        failed: integer(36)
      )
    }
    guard integer(33) > 0 || found.batch != nil else {
      return found == TaskDependencies() ? nil : found
    }
    for row in try lookUp(id) {
      guard let id = row.id else { throw UnreadableRow(column: "dependency") }
      if row.isNamed { found.tasks.insert(id) }
      if let state = row.failed.flatMap(TaskState.init) { found.note(id, endedAs: state) }
    }
    return found
  }
}

/// The failures of a task before the last failure, stored as JSON.
enum StoredFailures {
  private struct Failure: Codable {
    var reason: String
    var date: Double
    var attempt: String?
  }

  /// Returns the failures as JSON; `nil` if there are no failures.
  static func json(of failures: [TaskFailure]) -> String? {
    let stored = failures.map { failure in
      Failure(
        reason: failure.reason,
        date: failure.date.timeIntervalSince1970,
        attempt: failure.attempt?.text
      )
    }
    guard !stored.isEmpty, let data = try? JSONEncoder().encode(stored) else { return nil }
    return String(decoding: data, as: UTF8.self)
  }

  /// Returns a task's earlier failures and the last failure as JSON.
  ///
  /// The columns of the row are the reason and the date of the last failure, the JSON for the
  /// earlier failures, and the attempt of the last failure.
  static func jsonWithLastFailure(_ row: some TaskRow) throws -> String? {
    let earlier = try read(row.unlessNull(2, row.text))
    guard let reason = row.unlessNull(0, row.text), let date = row.unlessNull(1, row.date) else {
      return json(of: earlier)
    }
    let attempt = row.unlessNull(3, row.text).map(FailedAttempt.init(text:))
    let last = TaskFailure(reason: reason, date: date, attempt: attempt)
    return json(of: TaskRecord.latestStorable(of: earlier + [last.shortened()]))
  }

  static func read(_ text: String?) throws -> [TaskFailure] {
    guard let text else { return [] }
    do {
      return try JSONDecoder().decode([Failure].self, from: Data(text.utf8)).map { failure in
        TaskFailure(
          reason: failure.reason,
          date: Date(timeIntervalSince1970: failure.date),
          attempt: failure.attempt.map(FailedAttempt.init(text:))
        )
      }
    } catch {
      throw UnreadableRow(column: "earlier_failures")
    }
  }
}

/// The greatest payload version that the program knew that parked a task, as it is stored.
package enum StoredVersion {
  package static func integer(for version: Int?) -> SQLValue { .integer(version ?? .min) }

  static func version(in integer: Int) -> Int? { integer == .min ? nil : integer }
}

/// The metadata of a task, stored as a JSON object.
package enum StoredMetadata {
  /// Returns the metadata as JSON, sorted by its keys; null if it is empty.
  package static func value(of metadata: [String: String]) -> SQLValue {
    metadata.isEmpty ? .null : .text(json(of: metadata))
  }

  /// Returns the metadata as JSON.
  static func json(of metadata: [String: String]) -> String {
    // Strings can always be encoded.
    (try? StableJSON.encode(metadata)).map { String(decoding: $0, as: UTF8.self) } ?? "{}"
  }

  fileprivate static func read(_ text: String?) throws -> [String: String] {
    guard let text else { return [:] }
    do {
      return try JSONDecoder().decode([String: String].self, from: Data(text.utf8))
    } catch {
      throw UnreadableRow(column: "metadata")
    }
  }
}

/// A key as it is stored: prefixed with the name of its queue, so that queues never share a key.
package enum StoredKey {
  /// A queue's name has no control characters, so the first control character ends the name.
  private static let separator = "\u{1}"

  package static func string(for key: String, in queue: String) -> String {
    queue + separator + key
  }

  package static func string(for key: String?, in queue: String) -> String? {
    key.map { string(for: $0, in: queue) }
  }

  /// Returns the key in a stored string.
  package static func key(in string: String?, of queue: String) -> String? {
    string.map { String(decoding: $0.utf8.dropFirst(queue.utf8.count + 1), as: UTF8.self) }
  }
}

/// The error for a row with a value that this version does not know.
package struct UnreadableRow: Error {
  package let column: String
  /// The ID of the task in the row; `nil` if the ID is unknown.
  package var id: TaskID?

  package init(column: String, id: TaskID? = nil) {
    self.column = column
    self.id = id
  }

  package var reason: String {
    "has a value in \(column) that this version of Steadfast does not know"
  }
}

extension TaskState {
  /// The states of tasks that have not ended and are not claimed.
  static let unclaimed: Set<TaskState> = [.waiting, .suspended, .parked, .paused]
  static let ended: Set<TaskState> = [.succeeded, .abandoned, .cancelled]
}

/// The properties of a task that a change needs.
struct TaskEntry {
  let id: TaskID
  let state: TaskState
  let name: String
  /// The unique key as ``StoredKey`` stores it, with the name of the queue.
  let uniqueKey: String?
  let keyRole: UniqueKeyRole?
  let follower: TaskID?
  let memorySize: Int
  let priority: Int
  /// Whether another task names this task as a dependency.
  let isNamed: Bool
  /// The order key as ``StoredKey`` stores it, with the name of the queue.
  let orderKey: String?
  /// The command that the process which performs the task must carry out.
  let command: StoredCommand?
  private let token: UInt64?

  fileprivate init(_ id: TaskID, _ row: some TaskRow) throws {
    self.id = id
    state = try row.state(0)
    name = row.text(1)
    uniqueKey = row.unlessNull(2, row.text)
    keyRole = row.unlessNull(3, row.text).flatMap(UniqueKeyRole.init)
    follower = row.id(4)
    memorySize = row.integer(5)
    priority = row.integer(6)
    orderKey = row.unlessNull(7, row.text)
    token = row.token(8)
    isNamed = row.flag(9)
    command = row.unlessNull(10, row.text).flatMap(StoredCommand.init)
  }

  /// Whether another task waits for this task, or this task belongs to a batch.
  var affectsOtherTasks: Bool { isNamed || follower != nil }

  /// Whether the task has expired, and a later task has taken its unique key.
  var isDisplaced: Bool { uniqueKey != nil && keyRole == nil && !state.isFinished }

  /// Returns the outcome of a change that ends the attempt without success, if the task has a
  /// command that the target's lease does not have; `nil` if the change may be made.
  func refusal(of target: TaskTarget) -> ChangeOutcome? {
    guard let command, case .claimed(let lease) = target, lease.command != command else {
      return nil
    }
    return .commanded(command)
  }

  /// Returns whether a target matches the task: the target's lease is the current lease, or the
  /// target has no lease and the task is in a state that `isAllowed` accepts.
  fileprivate func matches(
    _ target: TaskTarget,
    unclaimedIf isAllowed: (TaskState) -> Bool
  ) -> Bool {
    switch target {
    case .claimed(let lease): state == .running && token == lease.token
    case .unclaimed: isAllowed(state)
    }
  }
}

extension TaskTables {
  /// Returns the task that a change targets, and records that the task's order key is affected.
  ///
  /// - Returns: `nil` if the change is stale: the target's lease is not the current lease, or the
  ///   target has no lease and the task is in none of the states.
  func entryToChange(_ target: TaskTarget, in states: Set<TaskState>) throws -> TaskEntry? {
    try entryToChange(target, unclaimedIf: states.contains)
  }

  /// Returns the task that a change targets, as ``entryToChange(_:in:)`` does, if `isAllowed`
  /// accepts the state of an unclaimed task.
  func entryToChange(
    _ target: TaskTarget,
    unclaimedIf isAllowed: (TaskState) -> Bool
  ) throws -> TaskEntry? {
    guard let entry = try entry(of: target.id), entry.matches(target, unclaimedIf: isAllowed) else {
      return nil
    }
    if let key = entry.orderKey { changedOrderKeys.append(key) }
    return entry
  }

  /// Returns the task that a lease belongs to, and records that the task's order key is affected.
  ///
  /// - Returns: `nil` if the lease is not the current lease of the task.
  func entryToChange(_ lease: Lease) throws -> TaskEntry? {
    try entryToChange(.claimed(lease), in: [])
  }

  /// Returns the properties of a task that a change needs; `nil` if no task has this ID.
  private func entry(of id: TaskID) throws -> TaskEntry? {
    // In PostgreSQL, the transaction has already locked the tasks that its changes name. Only a
    // task that another session has inserted since then is not locked yet, and no change can refer
    // to that task.
    try database.first(
      """
      select state, name, unique_key, key_role, follower, memory_size, priority, order_key,
        lease_token,
        exists (select 1 from steadfast_dependency where dependency = $1 and is_named), command
      from steadfast_task where id = $1 for update
      """,
      .id(id)
    ) { row in try TaskEntry(id, row) }
  }
}
