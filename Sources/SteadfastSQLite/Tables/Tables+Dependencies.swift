#if SQLite
import SteadfastDatabases
import SteadfastQueue
import SystemFoundation

/// Tasks that wait for others, and batches.
extension Tables {
  /// A task that is cancelled or restarted because of another task.
  struct AffectedTask {
    let id: TaskID
    let name: String
    let uniqueKey: String?
  }

  /// Reads a task from a row, and records that the task's order key is affected.
  private func readAffectedTask(_ row: Statement) throws -> AffectedTask {
    guard let id = row.id(0) else { throw UnreadableRow(column: "id") }
    if let key = row.unlessNull(3, row.text) { changedOrderKeys.append(key) }
    return AffectedTask(id: id, name: row.text(1), uniqueKey: row.unlessNull(2, row.text))
  }

  /// Returns the outcome of a change to a task, with the consequences for other tasks.
  func outcome(for entry: TaskEntry, affecting tasks: [TaskID]) throws -> ChangeOutcome {
    let batch = try entry.follower.flatMap { follower in
      try database.first(
        """
        select batch_total, batch_succeeded, batch_failed from steadfast_task
        where id = ?1 and batch_total is not null
        """,
        .id(follower)
      ) { row in
        BatchProgress(
          total: row.integer(0),
          succeeded: row.integer(1),
          failed: row.integer(2)
        )
      }
    }
    return .doneWithConsequences(Consequences(tasks: tasks, batch: batch))
  }

  // MARK: Insertions

  func storeDependencies(_ dependencies: TaskDependencies, of record: TaskRecord) throws
    -> ChangeOutcome
  {
    var unmet: TaskID?
    var unfinishedCount = 0
    for id in dependencies.tasks.sorted() {
      let state = try database.first(
        "select state from steadfast_task where id = ?1",
        .id(id)
      ) { try $0.state(0) }
      let hasFailed = state == .abandoned || state == .cancelled
      if state == nil || hasFailed && dependencies.rule == .allSucceeded { unmet = unmet ?? id }
      if let state, !state.isFinished { unfinishedCount += 1 }
      try database.run(
        "insert into steadfast_dependency values (?1, ?2, 1, ?3)",
        .id(id),
        .id(record.id),
        .text(hasFailed ? state?.rawValue : nil)
      )
    }
    if let unmet, !record.state.isFinished { return .unmetDependency(unmet) }
    try database.run(
      "update steadfast_task set open_count = ?2 where id = ?1",
      .id(record.id),
      .integer(unfinishedCount)
    )
    return .done
  }

  func addMembersToBatches(_ members: [TaskRecord]) throws {
    for record in members {
      guard let follower = record.dependencies.follower else { continue }
      // The row exists already if an earlier member with the same ID was removed.
      try database.run(
        """
        insert into steadfast_dependency (dependency, dependent, is_named)
        select ?1, id, 0 from steadfast_task where id = ?2
        on conflict do nothing
        """,
        .id(record.id),
        .id(follower)
      )
      try database.run(
        """
        update steadfast_task set batch_total = coalesce(batch_total, 0) + 1,
          batch_succeeded = coalesce(batch_succeeded, 0) + ?2,
          batch_failed = coalesce(batch_failed, 0) + ?3
        where id = ?1
        """,
        .id(follower),
        .flag(record.state == .succeeded),
        .flag(record.state.isFinished && record.state != .succeeded)
      )
    }
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
    try database.allRows(Self.dependentsToCancel, .id(id), read: readAffectedTask)
  }

  /// Selects the tasks of ``tasksToCancel(ifTaskFails:)``.
  ///
  /// If several conditions used only a row of `dependency`, SQLite could read the whole table
  /// first. So only the condition of the join does. The last condition, which otherwise equals
  /// ``concernsCurrentTask``, uses the ID in `reached` instead of the ID in the row.
  static let dependentsToCancel = """
    with recursive reached (id) as (
      values (?1)
      union
      select dependency.dependent from reached
      cross join steadfast_dependency as dependency on dependency.dependency = reached.id
      where (reached.id = ?1 or exists (
          select 1 from steadfast_task where id = reached.id and \(isCancelledWithDependency)))
        and (is_named or dependent = (select follower from steadfast_task where id = reached.id))
    )
    select id, name, unique_key, order_key from steadfast_task
    where id in (select id from reached) and id <> ?1 and \(isCancelledWithDependency) order by id
    """

  private static let isCancelledWithDependency = """
    dependency_rule = 'allSucceeded' and state in ('waiting', 'suspended', 'parked', 'paused')
    """

  /// Updates the tasks that depend on a task that ends.
  ///
  /// The row of the ending task must still exist.
  func recordEnd(of id: TaskID, as state: TaskState) throws {
    if state != .succeeded {
      try database.run(
        "update steadfast_dependency set failed = ?2 where dependency = ?1 and \(Self.concernsCurrentTask)",
        .id(id),
        .text(state.rawValue)
      )
    }
    try adjustCounts(forEndOf: id, as: state, by: 1)
  }

  /// Adds 1 or -1 to the counts of the tasks that depend on an ended task.
  ///
  /// `one` is 1 to record the end of the task, and -1 to undo the end.
  private func adjustCounts(forEndOf id: TaskID, as state: TaskState, by one: Int64) throws {
    try database.run(
      """
      update steadfast_task set open_count = open_count - ?3 * ended.named,
        batch_succeeded = batch_succeeded + ?3 * case when ?2 then ended.members else 0 end,
        batch_failed = batch_failed + ?3 * case when ?2 then 0 else ended.members end
      from (
        select dependent, sum(is_named) as named, sum(not is_named) as members
        from steadfast_dependency where dependency = ?1 and \(Self.concernsCurrentTask) group by dependent
      ) as ended
      where steadfast_task.id = ended.dependent
      """,
      .id(id),
      .flag(state == .succeeded),
      .integer(one)
    )
  }

  /// Cancels the tasks that depend on a task that ended.
  func cancel(_ others: [AffectedTask], becauseOf id: TaskID, at date: Date, retains: Bool) throws {
    let ended = Set(others.map(\.id) + [id])
    for other in others {
      if retains {
        let causes = try database.ids(
          """
          select dependency from steadfast_dependency where dependent = ?1 and \(Self.concernsCurrentTask)
          order by dependency
          """,
          .id(other.id)
        )
        try database.run(
          """
          update steadfast_task set state = 'cancelled', finished_date = ?2, key_role = null,
            has_turn = 0, cause = ?3
          where id = ?1
          """,
          .id(other.id),
          .date(date),
          .id(causes.first(where: ended.contains))
        )
      } else {
        try delete(other.id)
      }
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
    var round = [(id: entry.id, state: entry.state)]
    var restarted: [TaskID] = []
    while !round.isEmpty {
      for task in round { try undoEnd(of: task.id, as: task.state) }
      var others: [AffectedTask] = []
      for task in round {
        others += try database.allRows(
          """
          select id, name, unique_key, order_key from steadfast_task
          where cause = ?1 and state = 'cancelled'
          """,
          .id(task.id),
          read: readAffectedTask
        )
      }
      round = []
      for other in others.sorted(by: { $0.id < $1.id })
      where try !updateCauseOrKeyRole(other) {
        round.append((other.id, .cancelled))
      }
      restarted += round.map(\.id)
    }
    restarted.sort()
    try restartTasks(restarted, at: date)
    return restarted
  }

  private func undoEnd(of id: TaskID, as state: TaskState) throws {
    try database.run(
      "update steadfast_dependency set failed = null where dependency = ?1 and \(Self.concernsCurrentTask)",
      .id(id)
    )
    try adjustCounts(forEndOf: id, as: state, by: -1)
  }

  /// Sets the new cause of a task that must stay cancelled, or makes the task the holder of its
  /// key.
  ///
  /// - Returns: Whether the task must stay cancelled.
  private func updateCauseOrKeyRole(_ other: AffectedTask) throws -> Bool {
    let cause = try database.ids(Self.firstFailure, .id(other.id)).first
    var keeps = try cause != nil || hasOtherFailures(of: other.id)
    if !keeps, let key = other.uniqueKey {
      keeps = try holder(ofKey: key, taskName: other.name) != nil
    }
    let takesKey = !keeps && other.uniqueKey != nil
    try database.run(
      "update steadfast_task set cause = ?2, key_role = ?3 where id = ?1",
      .id(other.id),
      .id(cause),
      .text(takesKey ? "holder" : nil)
    )
    return keeps
  }

  /// Selects the first failed dependency that still exists.
  ///
  /// The index sorts by the IDs of dependencies. So if many failed members of a batch are
  /// restarted, each restart reads only one row.
  static let firstFailure = """
    select dependency from steadfast_dependency as failure indexed by steadfast_failed
    where dependent = ?1 and failed is not null
      and exists (select 1 from steadfast_task where id = failure.dependency)
    order by dependency limit 1
    """

  /// Returns whether a task has failures that no row of an existing task records.
  ///
  /// Such failures are those of removed tasks, and those of members that had already ended when
  /// they were added to the batch.
  private func hasOtherFailures(of id: TaskID) throws -> Bool {
    try database.hasRow(
      """
      select 1 from steadfast_task where id = ?1 and batch_failed > (
        select count(distinct dependency) from steadfast_dependency indexed by steadfast_failed
        where dependent = ?1 and failed is not null)
      union all
      select 1 from steadfast_dependency indexed by steadfast_failed
      where dependent = ?1 and failed is not null
      """,
      .id(id)
    )
  }
}
#endif
