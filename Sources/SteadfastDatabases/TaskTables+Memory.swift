import SteadfastQueue
import SystemFoundation

/// The memory of tasks, and the values of the store.
extension TaskTables {
  func remember(_ lease: Lease, named name: String, value: [UInt8]) throws -> ChangeOutcome {
    guard let entry = try entryToChange(lease) else { return .stale }
    try database.send(
      """
      insert into steadfast_memory (task_id, name, value) values ($1, $2, $3)
      on conflict (task_id, name) do update set value = excluded.value
      """,
      .id(entry.id),
      .text(name),
      .bytes(value)
    )
    try database.send(TaskStatements.memorySize, forEach: [entry.id])
    try database.send(
      "update steadfast_task set interruption_count = 0 where id = $1",
      .id(entry.id)
    )
    return .done
  }

  func suspend(
    _ lease: Lease,
    until date: Date,
    awaiting names: [String],
    countedFrom origin: Date?
  ) throws -> ChangeOutcome {
    guard let entry = try entryToChange(lease) else { return .stale }
    if let refusal = entry.refusal(of: .claimed(lease)) { return refusal }
    try database.send(
      """
      update steadfast_task set
        state = case when come.has_come then 'waiting' else 'suspended' end,
        available_date = case when come.has_come then created_date else $2 end,
        counted_from = case when come.has_come then null else $4::timestamptz end,
        interruption_count = 0, put_off = false, position = nextval('steadfast_place'),
        lease_token = null, lease_end = null, command = null
      from (
        select exists (
          select 1 from steadfast_memory /*sqlite indexed by sqlite_autoindex_steadfast_memory_1 */
          where task_id = $1 and name = any ($3::text[]) and octet_length(value) > 0) as has_come
      ) as come
      where id = $1
      """,
      .id(entry.id),
      .date(date),
      .texts(names),
      .date(origin)
    )
    return .done
  }

  func complete(_ id: TaskID, named name: String, value: [UInt8]) throws -> ChangeOutcome {
    guard let entry = try entryToChange(.unclaimed(id), in: TaskState.unfinished) else {
      return .stale
    }
    let filled = try database.run(
      """
      update steadfast_memory set value = $3
      where task_id = $1 and name = $2 and octet_length(value) = 0
      """,
      .id(id),
      .text(name),
      .bytes(value)
    )
    guard filled > 0 else { return .stale }
    try database.send(TaskStatements.memorySize, forEach: [id])
    guard entry.state == .suspended else { return .done }
    try move(entry, RowMove(to: .waiting, wakes: true))
    return .done
  }

  func removeMemory(of entry: TaskEntry) throws {
    guard entry.memorySize > 0 else { return }
    try database.send(TaskStatements.memoryDeletion, forEach: [entry.id])
    try database.send("update steadfast_task set memory_size = 0 where id = $1", .id(entry.id))
  }

  func setValue(_ bytes: [UInt8]?, named name: String) throws -> ChangeOutcome {
    if let bytes {
      try database.send(
        """
        insert into steadfast_value (name, bytes) values ($1, $2)
        on conflict (name) do update set bytes = excluded.bytes
        """,
        .text(name),
        .bytes(bytes)
      )
    } else {
      try database.send("delete from steadfast_value where name = $1", .text(name))
    }
    return .done
  }
}

extension TaskStatements {
  /// The end of a statement that reads or deletes the memory of tasks.
  ///
  /// Without the index's name, SQLite would read the whole table if its statistics said that the
  /// table is small.
  private static let ofTasks = """
    from steadfast_memory /*sqlite indexed by sqlite_autoindex_steadfast_memory_1 */
    where task_id = any ($1)
    """

  package static let memory = "select name, value \(ofTasks)"

  package static let memoryDeletion = "delete \(ofTasks)"

  package static let memorySize = """
    update steadfast_task set memory_size = (
        select coalesce(sum(octet_length(name) + octet_length(value)), 0) \(ofTasks))
    where id = any ($1)
    """
}
