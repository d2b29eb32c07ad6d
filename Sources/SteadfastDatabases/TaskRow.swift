package import SteadfastQueue

#if canImport(FoundationEssentials)
package import FoundationEssentials
#else
package import Foundation
#endif

/// A row that a statement returned, with columns that are counted from 0.
package protocol TaskRow {
  func isNull(_ column: Int32) -> Bool
  /// The whole number in a column; 0 if it is null.
  func int64(_ column: Int32) -> Int64
  /// The whole number in a column, or the nearest one that `Int` can hold; 0 if it is null.
  func integer(_ column: Int32) -> Int
  func flag(_ column: Int32) -> Bool
  func text(_ column: Int32) -> String
  func bytes(_ column: Int32) -> [UInt8]
  /// The ID in a column; `nil` if it is null.
  func id(_ column: Int32) -> TaskID?
  func date(_ column: Int32) -> Date
  /// The texts of an array; none if it is null.
  ///
  /// - Throws: An ``UnreadableRow`` if it is no array of texts.
  func texts(_ column: Int32) throws -> [String]
}

extension TaskRow {
  /// What `read` finds in a column; `nil` if it is null.
  package func ifAny<Value>(_ column: Int32, _ read: (Int32) throws -> Value) rethrows -> Value? {
    isNull(column) ? nil : try read(column)
  }

  package func state(_ column: Int32) throws -> TaskState {
    guard let state = TaskState(rawValue: text(column)) else {
      throw UnreadableRow(column: "state")
    }
    return state
  }

  package func token(_ column: Int32) -> UInt64? {
    ifAny(column) { UInt64(bitPattern: int64($0)) }
  }
}

/// The columns of a task, in the order in which they are read.
package enum TaskColumns {
  package static let names = [
    "id", "name", "queue", "payload", "format", "schema_version", "priority", "created_date",
    "available_date", "max_retries", "uses_backoff", "unique_key", "key_role", "unique_until",
    "latest_date", "order_key", "holds_order", "conditions", "tags", "time_limit", "expiry_date",
    "state", "retry_count", "interruption_count", "last_error", "failed_date", "earlier_failures",
    "put_off", "memory_size", "finished_date", "dependency_rule", "follower", "cause",
    "name_count", "batch_total", "batch_succeeded", "batch_failed", "counted_from",
  ]

  /// The number of the first column behind those.
  package static let count = Int32(names.count)
}

/// A task that another one waits for or counts, as a row of both: its ID, whether it is named, and
/// the state as which it has failed.
package struct StoredDependency {
  fileprivate let id: TaskID?
  fileprivate let isNamed: Bool
  fileprivate let failed: String?

  package init(_ row: some TaskRow) {
    id = row.id(0)
    isNamed = row.flag(1)
    failed = row.ifAny(2, row.text)
  }
}

extension TaskRow {
  /// Returns the task in a row of ``TaskColumns``.
  ///
  /// `dependencies` looks up what a task waits for or counts, if there is something.
  ///
  /// - Throws: An ``UnreadableRow`` that names the task.
  package func record(
    _ dependencies: (TaskID) throws -> [StoredDependency]
  ) throws -> TaskRecord {
    guard let id = id(0) else { throw UnreadableRow(column: "id") }
    do {
      return try record(id, self.dependencies(of: id, dependencies))
    } catch let unreadable as UnreadableRow {
      throw UnreadableRow(column: unreadable.column, id: id)
    }
  }

  private func record(_ id: TaskID, _ dependencies: TaskDependencies?) throws -> TaskRecord {
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
      maxRetries: ifAny(9) { .atMost(integer($0)) } ?? .alwaysRetry,
      usesBackoff: flag(10),
      uniqueKey: StoredKey.key(in: ifAny(11, text), of: queue),
      keyRole: ifAny(12, text).flatMap(UniqueKeyRole.init),
      uniqueUntil: ifAny(13, date),
      latestDate: ifAny(14, date),
      orderKey: StoredKey.key(in: ifAny(15, text), of: queue),
      holdsOrder: flag(16),
      conditions: Set(try texts(17).map(TaskCondition.init(rawValue:))),
      dependencies: dependencies,
      queue: queue,
      tags: Set(try texts(18)),
      timeLimit: ifAny(19) { .microseconds(int64($0)) },
      expiryDate: ifAny(20, date),
      memorySize: integer(28),
      state: try state(21),
      availableDate: date(8),
      countedFrom: ifAny(37, date),
      retryCount: integer(22),
      interruptionCount: integer(23),
      lastError: ifAny(24, text),
      failedDate: ifAny(25, date),
      earlierFailures: try StoredFailures.read(ifAny(26, text)),
      isPostponed: flag(27),
      finishedDate: ifAny(29, date)
    )
  }

  private func dependencies(
    of id: TaskID,
    _ look: (TaskID) throws -> [StoredDependency]
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
    for row in try look(id) {
      guard let id = row.id else { throw UnreadableRow(column: "dependency") }
      if row.isNamed { found.tasks.insert(id) }
      if let state = row.failed.flatMap(TaskState.init) { found.note(id, endedAs: state) }
    }
    return found
  }
}
