#if PostgreSQL
import SteadfastDatabases

extension Connection {
  /// The statement that counts all tasks.
  ///
  /// Each part of the statement reads one index, which contains all columns that it needs.
  static let census = [
    "is_ready and available_date = coalesce(due_date, created_date)",
    "is_ready and available_date <> coalesce(due_date, created_date)",
    "state <> 'running' and not is_ready",
    "state = 'running'",
  ].map { condition in
    """
    select queue, name, state, count(*),
      count(*) filter (where state = 'waiting' and available_date <= $1),
      count(*) filter (where state = 'waiting' and put_off),
      min(available_date) filter (where state = 'waiting' and available_date <= $1)
    from steadfast_task where \(condition)
    group by queue, name, state
    """
  }.joined(separator: "\nunion all\n")
}
#endif
