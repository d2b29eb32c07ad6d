#if PostgreSQL
import SteadfastDatabases
import SteadfastQueue

/// What a change has to know of its task, and what it notes.
extension Tables {
  func entry(of id: TaskID) throws -> TaskEntry? {
    // A transaction has locked its tasks. A task that was not there then may be there now: another
    // session's insertion, which a change that was sent before it can't concern.
    try database.first(
      """
      select \(TaskEntry.columns),
        exists (select 1 from steadfast_dependency where dependency = $1 and is_named)
      from steadfast_task where id = $1 for update
      """,
      .id(id)
    ) { row in try TaskEntry(id, row) }
  }

  func promoteSuccessor(name: String, _ key: String) throws {
    hasFreedOthers = true
    try database.send(
      """
      update steadfast_task set key_role = 'holder'
      where name = $1 and unique_key = $2 and key_role = 'successor'
        and not exists (
          select 1 from steadfast_task as other
          where other.name = $1 and other.unique_key = $2 and other.key_role = 'holder')
      """,
      .text(name),
      .text(key)
    )
  }

  /// Notes a failure as the last one of a task.
  func note(_ failure: TaskFailure, _ entry: TaskEntry) throws {
    let earlier = try database.first(
      "select last_error, failed_date, earlier_failures from steadfast_task where id = $1",
      .id(entry.id),
      read: StoredFailures.textWithLast
    )
    try database.send(
      """
      update steadfast_task set last_error = $2, failed_date = $3, earlier_failures = $4
      where id = $1
      """,
      .id(entry.id),
      .text(failure.reason),
      .date(failure.date),
      .text(earlier ?? nil)
    )
  }
}
#endif
