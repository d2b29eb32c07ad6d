#if PostgreSQL
import SteadfastDatabases
import SteadfastQueue

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// What tasks remember, and the values of the store.
extension Tables {
  func remember(_ lease: Lease, _ name: String, _ value: [UInt8]) throws -> ChangeOutcome {
    guard let entry = try entry(lease) else { return .stale }
    try database.send(
      """
      insert into steadfast_memory (task_id, name, value) values ($1, $2, $3)
      on conflict (task_id, name) do update set value = excluded.value
      """,
      .id(entry.id),
      .text(name),
      .bytes(value)
    )
    try measure(entry)
    try database.send(
      "update steadfast_task set interruption_count = 0 where id = $1",
      .id(entry.id)
    )
    return .done
  }

  private func measure(_ entry: TaskEntry) throws {
    try database.send(
      """
      update steadfast_task set memory_size = (
          select coalesce(sum(octet_length(name) + octet_length(value)), 0)
          from steadfast_memory where task_id = $1)
      where id = $1
      """,
      .id(entry.id)
    )
  }

  func suspend(
    _ lease: Lease,
    until date: Date,
    awaiting names: [String],
    countedFrom origin: Date?
  ) throws -> ChangeOutcome {
    guard let entry = try entry(lease) else { return .stale }
    try database.send(
      """
      update steadfast_task set
        state = case when come.has_come then 'waiting' else 'suspended' end,
        available_date = case when come.has_come then created_date else $2 end,
        counted_from = case when come.has_come then null else $4::timestamptz end,
        interruption_count = 0, put_off = false, position = \(Self.nextPlace),
        lease_token = null, lease_end = null
      from (
        select exists (
          select 1 from steadfast_memory
          where task_id = $1 and name = any ($3) and octet_length(value) > 0) as has_come
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

  func complete(_ id: TaskID, _ name: String, _ value: [UInt8]) throws -> ChangeOutcome {
    guard let entry = try entry(.unclaimed(id), in: TaskState.unfinished) else {
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
    try measure(entry)
    guard entry.state == .suspended else { return .done }
    try setWakeDate(of: entry)
    try move(entry, to: .waiting)
    return .done
  }

  /// Gives a suspended task that wakes the date on which it was enqueued.
  func setWakeDate(of entry: TaskEntry) throws {
    try database.send(
      """
      update steadfast_task
      set available_date = created_date, counted_from = null, put_off = false
      where id = $1
      """,
      .id(entry.id)
    )
  }

  /// Removes what a task remembers.
  func forget(_ entry: TaskEntry) throws {
    guard entry.memorySize > 0 else { return }
    try database.send("delete from steadfast_memory where task_id = $1", .id(entry.id))
    try database.send("update steadfast_task set memory_size = 0 where id = $1", .id(entry.id))
  }

  // MARK: Values

  func set(_ bytes: [UInt8]?, named name: String) throws -> ChangeOutcome {
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
#endif
