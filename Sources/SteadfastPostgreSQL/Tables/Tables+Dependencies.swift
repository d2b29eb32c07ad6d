#if PostgreSQL
import SteadfastDatabases
import SteadfastQueue
import SystemFoundation

/// Dependencies between tasks, and batches.
///
/// The article "Storing dependencies" explains the statements. If the server planned a join while
/// the tables are empty, the plan would read a whole table. To prevent this, each subquery has
/// `offset 0`, which keeps the server from merging the subquery into a join, and each update lists
/// the IDs of its rows. So all rows are found through an index.
extension Tables {
  /// A task that is cancelled because of another task.
  struct AffectedTask {
    let id: TaskID
    let name: String
    let uniqueKey: String?
  }

  /// Returns the outcome of a change to a task, with the consequences for other tasks.
  func outcome(for entry: TaskEntry, affecting tasks: [TaskID]) throws -> ChangeOutcome {
    let batch = try entry.follower.flatMap { follower in
      try database.first(
        """
        select batch_total, batch_succeeded, batch_failed from steadfast_task
        where id = $1 and batch_total is not null
        """,
        .id(follower)
      ) { row in
        BatchProgress(total: row.integer(0), succeeded: row.integer(1), failed: row.integer(2))
      }
    }
    return .doneWithConsequences(Consequences(tasks: tasks, batch: batch))
  }

  // MARK: Insertions

  func storeDependencies(_ dependencies: TaskDependencies, of record: TaskRecord) throws
    -> ChangeOutcome
  {
    try database.send(
      """
      insert into steadfast_dependency (dependency, dependent, is_named, failed)
      select named.id, $1, true, (
        select state from steadfast_task
        where id = named.id and state in ('abandoned', 'cancelled'))
      from unnest($2::uuid[]) as named (id)
      """,
      .id(record.id),
      .ids(dependencies.tasks)
    )
    let unmet = try database.ids(
      """
      select dependency.dependency from steadfast_dependency as dependency
      where dependency.dependent = $1 and dependency.is_named
        and ((dependency.failed is not null and $2::boolean) or not exists (
          select 1 from steadfast_task where id = dependency.dependency offset 0))
      order by dependency.dependency limit 1
      """,
      .id(record.id),
      .flag(dependencies.rule == .allSucceeded)
    ).first
    if let unmet, !record.state.isFinished { return .unmetDependency(unmet) }
    try database.send(
      """
      update steadfast_task set open_count = (
          select count(*) from steadfast_dependency as dependency
          where dependency.dependent = $1 and dependency.is_named and exists (
            select 1 from steadfast_task
            where id = dependency.dependency and not has_ended offset 0))
      where id = $1
      """,
      .id(record.id)
    )
    return .done
  }

  func addMembersToBatches(_ members: [TaskRecord]) throws {
    // The row exists already if an earlier member with the same ID was removed.
    try database.send(
      """
      insert into steadfast_dependency (dependency, dependent, is_named)
      select member.id, member.follower, false
      from steadfast_task as member
      where member.id = any ($1) and exists (
        select 1 from steadfast_task where id = member.follower offset 0)
      on conflict do nothing
      """,
      .ids(members.map(\.id))
    )
    try database.send(
      """
      update steadfast_task as task set
        batch_total = coalesce(batch_total, 0) + counted.total,
        batch_succeeded = coalesce(batch_succeeded, 0) + counted.succeeded,
        batch_failed = coalesce(batch_failed, 0) + counted.total - counted.open
          - counted.succeeded
      from (
        select follower, count(*) as total,
          count(*) filter (where state = 'succeeded') as succeeded,
          count(*) filter (where not has_ended) as open
        from (
          select follower, state, has_ended from steadfast_task where id = any ($1) offset 0
        ) as member
        group by follower
      ) as counted
      where task.id = counted.follower and task.id = any ($2)
      """,
      .ids(members.map(\.id)),
      .ids(members.compactMap(\.dependencies.follower))
    )
  }

  // MARK: Ends

  /// The condition that a row of `steadfast_dependency` belongs to the current task with the ID
  /// `dependency`.
  ///
  /// When a member of a batch is removed, the member's row stays. Another task may have the same ID
  /// later.
  private static let concernsCurrentTask = """
    (is_named or dependent = (select follower from steadfast_task where id = dependency))
    """

  /// Returns the tasks to cancel if a task ends without success, in the order of their IDs.
  func tasksToCancel(ifTaskFails id: TaskID) throws -> [AffectedTask] {
    try database.allRows(
      """
      with recursive ended (id) as (
        values ($1::uuid)
        union
        select other.id from ended
        cross join lateral (
          select dependent from steadfast_dependency
          where dependency = ended.id and \(Self.concernsCurrentTask) offset 0
        ) as dependency
        cross join lateral (
          select id from steadfast_task
          where id = dependency.dependent and dependency_rule = 'allSucceeded'
            and state in ('waiting', 'suspended', 'parked', 'paused') offset 0
        ) as other
      )
      select id, name, unique_key, order_key from steadfast_task
      where id = any (array(select id from ended)) and id <> $1 order by id
      """,
      .id(id)
    ) { row in
      guard let id = row.id(0) else { throw UnreadableRow(column: "id") }
      if let key = row.unlessNull(3, row.text) { changedOrderKeys.append(key) }
      return AffectedTask(id: id, name: row.text(1), uniqueKey: row.unlessNull(2, row.text))
    }
  }

  /// Updates the tasks that depend on tasks that end.
  ///
  /// The rows of the ending tasks must still exist.
  func recordEnds(of ids: [TaskID], as state: TaskState) throws {
    if state != .succeeded {
      try database.send(
        """
        update steadfast_dependency set failed = $2
        where dependency = any ($1) and \(Self.concernsCurrentTask)
        """,
        .ids(ids),
        .text(state.rawValue)
      )
    }
    try adjustCounts(forEndsOf: ids, as: state, by: 1)
  }

  /// Adds 1 or -1 for each of the ended tasks to the counts of the tasks that depend on them.
  ///
  /// `one` is 1 to record the ends of the tasks, and -1 to undo the ends.
  private func adjustCounts(forEndsOf ids: [TaskID], as state: TaskState, by one: Int64) throws {
    hasFreedOthers = true
    try database.send(
      """
      update steadfast_task as task set open_count = open_count - $3::bigint * ended.named,
        batch_succeeded = batch_succeeded
          + $3 * case when $2::boolean then ended.members else 0 end,
        batch_failed = batch_failed + $3 * case when $2 then 0 else ended.members end
      from (
        select dependent, count(*) filter (where is_named) as named,
          count(*) filter (where not is_named) as members
        from (
          select dependent, is_named from steadfast_dependency
          where dependency = any ($1) and \(Self.concernsCurrentTask) offset 0
        ) as listed group by dependent
      ) as ended
      where task.id = ended.dependent and task.id = any (array(
        select dependent from steadfast_dependency where dependency = any ($1)))
      """,
      .ids(ids),
      .flag(state == .succeeded),
      .integer(one)
    )
  }

  /// Cancels the tasks that depend on a task that ended.
  func cancel(_ others: [AffectedTask], becauseOf id: TaskID, at date: Date, retains: Bool) throws {
    guard !others.isEmpty else { return }
    let ids = others.map(\.id)
    try recordEnds(of: ids, as: .cancelled)
    if retains {
      try database.send(
        """
        update steadfast_task as task set state = 'cancelled', finished_date = $2,
          key_role = null, has_turn = false,
          cause = (
            select dependency from steadfast_dependency
            where dependent = task.id and dependency = any ($3) and \(Self.concernsCurrentTask)
            order by dependency limit 1)
        where id = any ($1)
        """,
        .ids(ids),
        .date(date),
        .ids(ids + [id])
      )
    } else {
      try delete(ids)
    }
    for other in others {
      guard let key = other.uniqueKey else { continue }
      try promoteSuccessor(ofKey: key, taskName: other.name)
    }
  }

  // MARK: Restarts

  /// Undoes the end of a task, and restarts the tasks that were cancelled because of that end.
  ///
  /// - Returns: The restarted tasks, in the order of their IDs.
  func restartCascade(of entry: TaskEntry, at date: Date) throws -> [TaskID] {
    var round = [entry.id]
    var state = entry.state
    var restarted: [TaskID] = []
    while !round.isEmpty {
      try database.send(
        """
        update steadfast_dependency set failed = null
        where dependency = any ($1) and failed is not null and \(Self.concernsCurrentTask)
        """,
        .ids(round)
      )
      try adjustCounts(forEndsOf: round, as: state, by: -1)
      round = try prepareRestart(ofTasksCausedBy: round)
      state = .cancelled
      restarted += round
    }
    restarted.sort()
    if !restarted.isEmpty { try restartTasks(restarted, at: date) }
    return restarted
  }

  /// Prepares the restart of the tasks that were cancelled because of the given tasks.
  ///
  /// The tasks that can restart become the holders of their keys. The other tasks stay cancelled:
  /// they get another cause, or no cause if another task holds their key.
  ///
  /// - Returns: The tasks to restart.
  private func prepareRestart(ofTasksCausedBy ids: [TaskID]) throws -> [TaskID] {
    try database.send(Self.stillFailed, .ids(ids))
    try database.send(
      """
      update steadfast_task as task set cause = null
      where cause = any ($1) and unique_key is not null and exists (
        select 1 from steadfast_task as other
        where other.name = task.name and other.unique_key = task.unique_key
          and (other.key_role = 'holder'
            or (other.cause = any ($1) and other.id < task.id)) offset 0)
      """,
      .ids(ids)
    )
    let found = try database.allRows(
      """
      update steadfast_task set cause = null,
        key_role = case when unique_key is not null then 'holder' end
      where cause = any ($1) returning id, order_key
      """,
      .ids(ids)
    ) { row in (id: row.id(0), orderKey: row.unlessNull(1, row.text)) }
    changedOrderKeys += found.compactMap(\.orderKey)
    return found.compactMap(\.id)
  }

  private static let stillFailed = """
    update steadfast_task as task set cause = (
        select dependency.dependency from steadfast_dependency as dependency
        where dependency.dependent = task.id and dependency.failed is not null
          and exists (select 1 from steadfast_task where id = dependency.dependency offset 0)
        order by dependency.dependency limit 1)
    where cause = any ($1) and (
      exists (
        select 1 from steadfast_dependency as dependency
        where dependency.dependent = task.id and dependency.failed is not null offset 0)
      or batch_failed > (
        select count(distinct dependency.dependency) from steadfast_dependency as dependency
        where dependency.dependent = task.id and dependency.failed is not null))
    """
}
#endif
