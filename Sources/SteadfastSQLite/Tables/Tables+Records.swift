#if SQLite
import SteadfastDatabases
import SteadfastQueue

/// Reading tasks.
extension Connection {
  /// The columns that `record(_:)` reads.
  static let columns = TaskColumns.names.map { name in
    // A long payload has a row of its own.
    name == "payload"
      ? "coalesce(payload, (select bytes from steadfast_payload where task_id = id))" : name
  }.joined(separator: ", ")

  /// Returns the task in a row, with what it waits for.
  ///
  /// - Throws: An ``UnreadableRow`` that names the task.
  func record(_ row: Statement) throws -> TaskRecord {
    try row.record { id in
      try all(
        """
        select dependency, is_named, failed
        from steadfast_dependency indexed by steadfast_dependent
        where dependent = ?1 and (is_named or failed is not null) order by dependency
        """,
        .id(id),
        read: StoredDependency.init
      )
    }
  }

  /// Returns the task with an ID; `nil` if there is none.
  func record(of id: TaskID) throws -> TaskRecord? {
    try first("select \(Self.columns) from steadfast_task where id = ?1", .id(id), read: record)
  }
}
#endif
