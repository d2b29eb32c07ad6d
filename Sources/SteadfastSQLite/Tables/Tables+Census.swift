#if SQLite
import SteadfastDatabases

extension Connection {
  /// The statement that counts all tasks.
  ///
  /// The index of the ready tasks does not contain states. So the statement counts each ready task
  /// as waiting, and then moves the suspended ones, which are in an index of their own. It looks up
  /// the oldest task once for each name and rank, because that is faster than a minimum.
  static let census = """
    with ready as (
      select queue, name, rank, count(*) as tasks, sum(available_date <= ?1) as due
      from steadfast_task indexed by steadfast_ready_name where is_ready
      group by queue, name, rank
    )
    select queue, name, 'waiting', tasks, due, 0, (
      select task.available_date
      from steadfast_task as task indexed by steadfast_ready_name
      where task.is_ready and task.queue = ready.queue and task.name = ready.name
        and task.rank is ready.rank and task.state = 'waiting' and task.available_date <= ?1
      order by task.available_date limit 1)
    from ready
    union all
    select queue, name, 'waiting', -count(*), -sum(available_date <= ?1), 0, null
    from steadfast_task indexed by steadfast_resumed
    where (put_off or state = 'suspended') and is_ready and state = 'suspended'
    group by queue, name
    union all
    select queue, name, state, (state = 'suspended') * count(*), 0,
      (state = 'waiting') * count(*), null
    from steadfast_task indexed by steadfast_resumed
    where (put_off or state = 'suspended') and is_ready
    group by queue, name, state
    union all
    select queue, name, state, count(*), sum(state = 'waiting' and available_date <= ?1),
      sum(state = 'waiting' and put_off),
      min(case when state = 'waiting' and available_date <= ?1 then available_date end)
    from steadfast_task indexed by steadfast_apart
    where state <> 'running' and not is_ready
    group by queue, name, state
    union all
    select queue, name, state, count(*), 0, 0, null
    from steadfast_task indexed by steadfast_lease where state = 'running'
    group by queue, name, state
    """
}
#endif
