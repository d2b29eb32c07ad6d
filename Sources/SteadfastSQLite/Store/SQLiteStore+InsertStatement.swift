#if SQLite
import SteadfastDatabases
public import SteadfastQueue

extension SQLiteStore {
  /// Returns the statement with which a program adds a task within its own transaction.
  ///
  /// It inserts one row into the view `steadfast_insertion`, or that of your prefix. The store must
  /// have been opened once, by a version that makes the view. After the statement,
  /// `select count(*) from steadfast_insertion where id = ?`, with the statement's first parameter,
  /// tells whether the task was added, or another one stands for it. SQLite's `changes()` does not
  /// tell: it does not count what is inserted into a view.
  ///
  /// - Throws: A ``SQLiteError`` for a task that a statement can't add: one that does not wait, or
  ///   is a member of a batch. A `TaskQueueError` for one that makes no sense; what a payload's
  ///   encoding throws.
  public func insertStatement(
    for record: TaskRecord,
    onDuplicate policy: UniquePolicy
  ) throws -> InsertStatement? {
    try core.place.check()
    if let objection = record.objectionToStatement {
      throw SQLiteError(.invalidArgument, url, objection)
    }
    return try InsertStatement(record, policy, prefix: core.place.prefix)
  }
}
#endif
