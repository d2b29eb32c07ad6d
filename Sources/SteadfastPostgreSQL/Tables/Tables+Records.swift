#if PostgreSQL
import SteadfastDatabases
import SteadfastQueue

/// Reading tasks.
extension Connection {
  /// The columns that `record(_:)` reads.
  static let columns = TaskColumns.names.map { "task.\($0)" }.joined(separator: ", ")

  /// Returns the task in a row, with what it waits for.
  ///
  /// - Throws: An ``UnreadableRow`` that names the task.
  func record(_ row: Row) throws -> TaskRecord {
    try row.record { id in
      try all(
        """
        select dependency, is_named, failed from steadfast_dependency
        where dependent = $1 and (is_named or failed is not null) order by dependency
        """,
        .id(id),
        read: StoredDependency.init
      )
    }
  }
}
#endif
