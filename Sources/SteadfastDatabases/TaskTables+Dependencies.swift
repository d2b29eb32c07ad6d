import SteadfastQueue
import SystemFoundation

/// A task that is cancelled or restarted because of another task.
struct AffectedTask {
  let id: TaskID
  let name: String
  let uniqueKey: String?
}

/// Dependencies between tasks, and batches.
///
/// The article "Storing dependencies" explains the statements. If PostgreSQL planned a join while
/// the tables are empty, the plan would read a whole table. To prevent this, each subquery has
/// `offset 0`, with which PostgreSQL does not merge the subquery into a join, and each update lists
/// the IDs of its rows. So all rows are found through an index.
extension TaskTables {
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

  /// Reads a task from a row, and records that the task's order key is affected.
  private func readAffectedTask(_ row: Database.ResultRow) throws -> AffectedTask {
    guard let id = row.id(0) else { throw UnreadableRow(column: "id") }
    if let key = row.unlessNull(3, row.text) { changedOrderKeys.append(key) }
    return AffectedTask(id: id, name: row.text(1), uniqueKey: row.unlessNull(2, row.text))
  }

  // MARK: Insertions

  /// Stores the dependencies of a new task.
  func storeDependencies(_ dependencies: TaskDependencies, of record: TaskRecord) throws
    -> ChangeOutcome
  {
    try database.send(
      """
      insert into steadfast_dependency (dependency, dependent, is_named, failed)
      select given.id, $2, true, (
        select state from steadfast_task
        where id = given.id and state in ('abandoned', 'cancelled'))
      from (select unnest($1::uuid[]) as id) as given
      """,
      forEach: dependencies.tasks.sorted(),
      .id(record.id)
    )
    let unmet = try database.ids(
      """
      select dependency.dependency
      from steadfast_dependency as dependency /*sqlite indexed by steadfast_dependent */
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
          select count(*)
          from steadfast_dependency as dependency /*sqlite indexed by steadfast_dependent */
          where dependency.dependent = $1 and dependency.is_named and exists (
            select 1 from steadfast_task
            where id = dependency.dependency and not has_ended offset 0))
      where id = $1
      """,
      .id(record.id)
    )
    return .done
  }

  /// Adds new tasks to the batches of their followers.
  ///
  /// A batch may already have had a member with the same ID, which was removed later. Then, the row
  /// of the dependency exists.
  func addMembersToBatches(_ members: [TaskID]) throws {
    try database.send(
      """
      insert into steadfast_dependency (dependency, dependent, is_named)
      select member.id, member.follower, false
      from steadfast_task as member
      where member.id = any ($1) and exists (
        select 1 from steadfast_task where id = member.follower offset 0)
      on conflict do nothing
      """,
      forEach: members
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
      where task.id = counted.follower/*-*/ and task.id = any (array(
        select follower from steadfast_task where id = any ($1)))/*-*/
      """,
      forEach: members
    )
  }

  // MARK: Ends

  /// Returns the tasks to cancel if a task ends without success, in the order of their IDs.
  func tasksToCancel(ifTaskFails id: TaskID) throws -> [AffectedTask] {
    try database.allRows(TaskStatements.dependentsToCancel, .id(id), read: readAffectedTask)
  }

  /// Updates the tasks that depend on tasks that end.
  ///
  /// The rows of the ending tasks must still exist.
  func recordEnds(of ids: [TaskID], as state: TaskState) throws {
    if state != .succeeded {
      try database.send(TaskStatements.failure, forEach: ids, .text(state.rawValue))
    }
    try adjustCounts(forEndsOf: ids, as: state, by: 1)
  }

  /// Adds 1 or -1 for each of the ended tasks to the counts of the tasks that depend on them.
  ///
  /// `one` is 1 to record the ends of the tasks, and -1 to undo the ends.
  private func adjustCounts(forEndsOf ids: [TaskID], as state: TaskState, by one: Int) throws {
    recordFreedTasks()
    try database.send(
      TaskStatements.counts,
      forEach: ids,
      .flag(state == .succeeded),
      .integer(one)
    )
  }

  /// Cancels the tasks that depend on a task that ended.
  func cancel(_ others: [AffectedTask], becauseOf id: TaskID, at date: Date, retains: Bool) throws {
    let ids = others.map(\.id)
    guard !ids.isEmpty else { return }
    try recordEnds(of: ids, as: .cancelled)
    if retains {
      // Only these tasks have a cause and have not ended, until all of them have their causes.
      try database.send(
        "update steadfast_task set cause = $2 where id = any ($1)",
        forEach: ids,
        .id(id)
      )
      try database.send(TaskStatements.causes, forEach: ids, .id(id))
      try database.send(
        """
        update steadfast_task set state = 'cancelled', finished_date = $2, key_role = null,
          has_turn = false, command = null
        where id = any ($1)
        """,
        forEach: ids,
        .date(date)
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
      try database.send(TaskStatements.noFailure, forEach: round)
      try adjustCounts(forEndsOf: round, as: state, by: -1)
      round = try prepareRestart(ofTasksCausedBy: round)
      state = .cancelled
      restarted += round
    }
    restarted.sort()
    try restartTasks(restarted, at: date)
    return restarted
  }

  /// Prepares the restart of the tasks that were cancelled because of the given tasks.
  ///
  /// The tasks that can restart become the holders of their keys. The other tasks stay cancelled:
  /// they get another cause, or no cause if another task holds their key.
  ///
  /// - Returns: The tasks to restart.
  private func prepareRestart(ofTasksCausedBy ids: [TaskID]) throws -> [TaskID] {
    try database.send(TaskStatements.stillFailed, forEach: ids)
    let found = try database.allRows(
      "select id, name, unique_key, order_key from steadfast_task where cause = any ($1)",
      forEach: ids,
      read: readAffectedTask
    ).sorted { $0.id < $1.id }
    let withTakenKeys = Set(
      try database.allRows(
        """
        select id from steadfast_task as task
        where id = any ($1) and exists (
          select 1 from steadfast_task as other
          where other.name = task.name and other.unique_key = task.unique_key
            and other.key_role = 'holder' offset 0)
        """,
        forEach: found.filter { $0.uniqueKey != nil }.map(\.id)
      ) { $0.id(0) }
    )
    var keys: Set<[ExactText]> = []
    let restarted = found.filter { task in
      guard let key = task.uniqueKey else { return true }
      return !withTakenKeys.contains(task.id)
        && keys.insert([ExactText(task.name), ExactText(key)]).inserted
    }.map(\.id)
    try database.send(
      "update steadfast_task set cause = null where id = any ($1)",
      forEach: found.map(\.id)
    )
    try database.send(
      """
      update steadfast_task set key_role = 'holder'
      where id = any ($1) and unique_key is not null
      """,
      forEach: restarted
    )
    return restarted
  }
}

extension TaskStatements {
  /// The condition that a row of `steadfast_dependency` belongs to the current task with the ID
  /// `dependency`.
  ///
  /// When a member of a batch is removed, the member's row stays. Another task may have the same ID
  /// later.
  private static let concernsCurrentTask = """
    (is_named or dependent = (select follower from steadfast_task where id = dependency))
    """

  private static let isCancelledWithDependency = """
    dependency_rule = 'allSucceeded' and state in ('waiting', 'suspended', 'parked', 'paused')
    """

  /// Selects the tasks to cancel if the task `$1` ends without success.
  ///
  /// If several conditions used only a row of `dependency`, SQLite could read the whole table
  /// first. So only the first condition does. The last condition, which otherwise equals
  /// ``concernsCurrentTask``, uses the ID in `reached` instead of the ID in the row.
  package static let dependentsToCancel = """
    with recursive reached (id) as (
      values ($1::uuid)
      union
      select dependency.dependent from reached
      cross join /*-*/lateral (select * from /*-*/steadfast_dependency as dependency
        where dependency.dependency = reached.id
          and (reached.id = $1 or exists (
            select 1 from steadfast_task
            where id = reached.id and \(isCancelledWithDependency) offset 0))
          and (is_named or dependent = (select follower from steadfast_task where id = reached.id))
        /*-*/ offset 0) as dependency/*-*/
    )
    select id, name, unique_key, order_key from steadfast_task
    where id = any (array(select id from reached)) and id <> $1 and \(isCancelledWithDependency)
    order by id
    """

  package static let failure = """
    update steadfast_dependency set failed = $2
    where dependency = any ($1) and \(concernsCurrentTask)
    """

  package static let noFailure = """
    update steadfast_dependency set failed = null
    where dependency = any ($1) and failed is not null and \(concernsCurrentTask)
    """

  package static let counts = """
    update steadfast_task as task set open_count = open_count - $3::bigint * ended.named,
      batch_succeeded = batch_succeeded
        + $3 * case when $2::boolean then ended.members else 0 end,
      batch_failed = batch_failed + $3 * case when $2 then 0 else ended.members end
    from (
      select dependent, count(*) filter (where is_named) as named,
        count(*) filter (where not is_named) as members
      from (
        select dependent, is_named from steadfast_dependency
        where dependency = any ($1) and \(concernsCurrentTask) offset 0
      ) as listed group by dependent
    ) as ended
    where task.id = ended.dependent/*-*/ and task.id = any (array(
      select dependent from steadfast_dependency where dependency = any ($1)))/*-*/
    """

  /// Gives each task in `$1` its cause: the first of the tasks on which it depends that ends now.
  ///
  /// Such a task is `$2`, or has a cause and has not ended. PostgreSQL, which updates all tasks at
  /// once, finds these tasks by the cause `$2`, which each of them still has.
  package static let causes = """
    update steadfast_task as task set cause = (
      select dependency from steadfast_dependency /*sqlite indexed by steadfast_dependent */
      where dependent = task.id and \(concernsCurrentTask) and (dependency = $2 or (
        select cause is not null and not has_ended from steadfast_task where id = dependency))
        /*-*/and dependency = any (array(
          select $2::uuid
          union all
          select id from steadfast_task where cause = $2 and not has_ended))/*-*/
      order by dependency limit 1)
    where id = any ($1)
    """

  /// Gives another cause to the tasks that must stay cancelled: the first failed dependency that
  /// still exists.
  ///
  /// There is none if all failures are those of removed tasks, or those of members that had already
  /// ended when they were added to the batch. The index sorts by the IDs of dependencies. So if
  /// many failed members of a batch are restarted, each restart reads only one row.
  package static let stillFailed = """
    update steadfast_task as task set cause = (
        select failure.dependency
        from steadfast_dependency as failure /*sqlite indexed by steadfast_failed */
        where failure.dependent = task.id and failure.failed is not null
          and exists (select 1 from steadfast_task where id = failure.dependency offset 0)
        order by failure.dependency limit 1)
    where cause = any ($1) and (
      exists (
        select 1 from steadfast_dependency as failure /*sqlite indexed by steadfast_failed */
        where failure.dependent = task.id and failure.failed is not null offset 0)
      or batch_failed > (
        select count(distinct failure.dependency)
        from steadfast_dependency as failure /*sqlite indexed by steadfast_failed */
        where failure.dependent = task.id and failure.failed is not null))
    """
}
