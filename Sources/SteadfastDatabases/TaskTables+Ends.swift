import SteadfastQueue
import SystemFoundation

/// Changes that end a task, or an attempt to perform a task.
extension TaskTables {
  func end(_ target: TaskTarget, _ end: TaskEnd) throws -> ChangeOutcome {
    if !end.retains, case .claimed(let lease) = target, try removeIfUnrelated(lease) {
      return .done
    }
    guard let entry = try entryToChange(target, in: TaskState.unclaimed) else { return .stale }
    if end.state != .succeeded, let refusal = entry.refusal(of: target) { return refusal }
    let others =
      entry.affectsOtherTasks && end.state != .succeeded
      ? try tasksToCancel(ifTaskFails: entry.id) : []
    if entry.affectsOtherTasks { try recordEnds(of: [entry.id], as: end.state) }
    if end.retains {
      if let failure = end.failure { try recordFailure(failure, of: entry) }
      try database.send(
        """
        update steadfast_task set state = $2, finished_date = $3, key_role = null,
          has_turn = false, lease_token = null, lease_end = null, command = null
        where id = $1
        """,
        .id(entry.id),
        .text(end.state.rawValue),
        .date(end.date)
      )
      if end.state == .succeeded { try removeMemory(of: entry) }
    } else {
      try delete([entry.id])
    }
    if entry.keyRole == .holder, let key = entry.uniqueKey {
      try promoteSuccessor(ofKey: key, taskName: entry.name)
    }
    guard entry.affectsOtherTasks else { return .done }
    try cancel(others, becauseOf: entry.id, at: end.date, retains: end.retains)
    return try outcome(for: entry, affecting: others.map(\.id))
  }

  /// Makes the successor of a unique key the holder, unless the key has a holder.
  func promoteSuccessor(ofKey key: String, taskName name: String) throws {
    recordFreedTasks()
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

  /// Replaces a task that is about to be retried with the successor of its unique key.
  ///
  /// The task is not replaced if there is no successor, if the successor expires before the retry,
  /// if the task has a memory, or if other tasks depend on it.
  ///
  /// - Returns: The outcome of the retry; `nil` if the task was not replaced.
  func replaceWithSuccessor(_ holder: TaskEntry, at date: Date) throws -> ChangeOutcome? {
    guard holder.keyRole == .holder, let key = holder.uniqueKey, !holder.affectsOtherTasks,
      holder.memorySize == 0
    else { return nil }
    let found = try database.first(
      """
      select id, order_key from steadfast_task
      where name = $1 and unique_key = $2 and key_role = 'successor'
        and (expiry_date is null or expiry_date > $3) for update
      """,
      .text(holder.name),
      .text(key),
      .date(date)
    ) { row in (id: row.id(0), orderKey: row.unlessNull(1, row.text)) }
    guard let found, let successor = found.id else { return nil }
    if let key = found.orderKey { changedOrderKeys.append(key) }
    try database.send("update steadfast_task set key_role = null where id = $1", .id(holder.id))
    try database.send(
      """
      update steadfast_task as task set key_role = 'holder',
        retry_count = holder.retry_count, interruption_count = holder.interruption_count,
        last_error = holder.last_error, failed_date = holder.failed_date,
        failed_attempt = holder.failed_attempt,
        earlier_failures = holder.earlier_failures, put_off = holder.put_off,
        counted_from = case when task.available_date > holder.available_date
          then task.counted_from else holder.counted_from end,
        available_date = greatest(task.available_date, holder.available_date)
      from steadfast_task as holder where holder.id = $1 and task.id = $2
      """,
      .id(holder.id),
      .id(successor)
    )
    try delete([holder.id])
    return .superseded(by: successor)
  }

  func extend(_ lease: Lease, for duration: Duration) throws -> ChangeOutcome {
    guard let entry = try entryToChange(lease) else { return .stale }
    if isShared { try extendClaim(of: entry.id, for: duration) }
    return .done
  }

  func replaceCommand(
    of id: TaskID,
    _ old: StoredCommand?,
    by new: StoredCommand?
  ) throws -> ChangeOutcome {
    guard let entry = try entryToChange(.unclaimed(id), in: [.running]), entry.command == old else {
      return .stale
    }
    try database.send(
      "update steadfast_task set command = $2 where id = $1",
      .id(id),
      .text(new?.rawValue)
    )
    return .done
  }

  /// Changes the row of a task that stays, and ends its claim.
  func move(_ entry: TaskEntry, _ move: RowMove) throws {
    try database.send(
      move.keepsPosition ? TaskStatements.move : TaskStatements.moveToEnd,
      .id(entry.id),
      .text(move.state.rawValue),
      .flag(move.wakes),
      .date(move.availableDate),
      .date(move.countedFrom),
      .flag(move.isPostponed),
      .integer(move.retryCount),
      .flag(move.clearsInterruptions)
    )
  }

  /// Stores a failure as the last failure of a task.
  func recordFailure(_ failure: TaskFailure, of entry: TaskEntry) throws {
    let earlier = try database.first(
      """
      select last_error, failed_date, earlier_failures, failed_attempt
      from steadfast_task where id = $1
      """,
      .id(entry.id)
    ) { try StoredFailures.jsonWithLastFailure($0) }
    try database.send(
      """
      update steadfast_task set last_error = $2, failed_date = $3, earlier_failures = $4,
        failed_attempt = $5
      where id = $1
      """,
      .id(entry.id),
      .text(failure.reason),
      .date(failure.date),
      .text(earlier ?? nil),
      .text(failure.attempt?.text)
    )
  }

  /// For each of ``changedOrderKeys``, gives the turn to run to the first task with that key.
  package func updateTurnsOfChangedOrderKeys() throws {
    for key in Set(changedOrderKeys.map(ExactText.init)).map(\.text) {
      try database.send(
        """
        update steadfast_task set has_turn = false
        where order_key = $1 and has_turn and state <> 'running'
          and id is distinct from (
            select head.id from steadfast_task as head
            where head.order_key = $1 and head.in_order
            order by head.order_number limit 1)
        """,
        .text(key)
      )
      try database.send(
        """
        update steadfast_task set has_turn = true
        where id = (
            select head.id from steadfast_task as head
            where head.order_key = $1 and head.in_order
            order by head.order_number limit 1)
          and not exists (
            select 1 from steadfast_task as other where other.order_key = $1 and other.has_turn)
        """,
        .text(key)
      )
    }
    if !changedOrderKeys.isEmpty { recordFreedTasks() }
    changedOrderKeys = []
  }
}

extension TaskStatements {
  package static let move = """
    update steadfast_task set state = $2,
      available_date = case when $3::boolean then created_date
        else coalesce($4, available_date) end,
      counted_from = case when $3::boolean or $4 is not null then $5 else counted_from end,
      put_off = coalesce($6, put_off), retry_count = coalesce($7, retry_count),
      interruption_count = case when $8::boolean then 0 else interruption_count end,
      lease_token = null, lease_end = null, command = null
    where id = $1
    """

  fileprivate static let moveToEnd = move.replacing(
    "state = $2,",
    with: "state = $2, position = nextval('steadfast_place'),"
  )
}
