#if SQLite
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
    try database.run(
      """
      insert into steadfast_memory (task_id, name, value) values (?1, ?2, ?3)
      on conflict (task_id, name) do update set value = excluded.value
      """,
      .id(lease.id),
      .text(name),
      .blob(value)
    )
    try database.run(
      "update steadfast_task set interruption_count = 0 where seq = ?1",
      entry.seq
    )
    try measure(lease.id)
    return .done
  }

  /// The index is named: if SQLite took the table for small, it would read all of it.
  private static let memory = """
    from steadfast_memory indexed by sqlite_autoindex_steadfast_memory_1 where task_id = ?1
    """

  /// Removes all that a task remembers.
  static let forgetting = "delete \(memory)"

  /// What a task remembers.
  static let remembered = "select name, value \(memory)"

  private func measure(_ id: TaskID) throws {
    try database.run(
      """
      update steadfast_task set memory_size = (
          select coalesce(sum(length(cast(name as blob)) + length(value)), 0)
          \(Self.memory))
      where id = ?1
      """,
      .id(id)
    )
  }

  func suspend(
    _ lease: Lease,
    until date: Date,
    awaiting names: [String],
    countedFrom origin: Date?
  ) throws -> ChangeOutcome {
    guard let entry = try entry(lease) else { return .stale }
    let hasCome = try names.contains { name in
      try database.has(
        """
        select 1 from steadfast_memory where task_id = ?1 and name = ?2 and length(value) > 0
        """,
        .id(lease.id),
        .text(name)
      )
    }
    try database.run(
      """
      update steadfast_task set
        available_date = case when ?4 then created_date else ?2 end,
        counted_from = case when ?4 then null else ?3 end,
        interruption_count = 0, put_off = 0
      where seq = ?1
      """,
      entry.seq,
      .date(date),
      .date(origin),
      .flag(hasCome)
    )
    try move(entry, to: hasCome ? .waiting : .suspended)
    return .done
  }

  func complete(_ id: TaskID, _ name: String, _ value: [UInt8]) throws -> ChangeOutcome {
    guard let entry = try entry(.unclaimed(id), in: TaskState.unfinished) else {
      return .stale
    }
    let filled = try database.run(
      """
      update steadfast_memory set value = ?3
      where task_id = ?1 and name = ?2 and length(value) = 0
      """,
      .id(id),
      .text(name),
      .blob(value)
    )
    guard filled > 0 else { return .stale }
    try measure(id)
    guard entry.state == .suspended else { return .done }
    try setWakeDate(of: entry)
    try move(entry, to: .waiting)
    return .done
  }

  /// Gives a suspended task the date that it has when it wakes.
  func setWakeDate(of entry: TaskEntry) throws {
    try database.run(
      """
      update steadfast_task set available_date = created_date, counted_from = null, put_off = 0
      where seq = ?1
      """,
      entry.seq
    )
  }

  /// Removes what a task remembers.
  func forget(_ entry: TaskEntry) throws {
    guard entry.memorySize > 0 else { return }
    try database.run(Self.forgetting, .id(entry.id))
    try database.run("update steadfast_task set memory_size = 0 where id = ?1", .id(entry.id))
  }

  // MARK: Values

  func set(_ bytes: [UInt8]?, named name: String) throws -> ChangeOutcome {
    if let bytes {
      try database.run(
        """
        insert into steadfast_value (name, bytes) values (?1, ?2)
        on conflict (name) do update set bytes = excluded.bytes
        """,
        .text(name),
        .blob(bytes)
      )
    } else {
      try database.run("delete from steadfast_value where name = ?1", .text(name))
    }
    return .done
  }
}

extension Connection {
  func value(named name: String) throws -> [UInt8]? {
    try first("select bytes from steadfast_value where name = ?1", .text(name)) { $0.bytes(0) }
  }

  func memory(of id: TaskID) throws -> TaskMemory {
    var memory = TaskMemory()
    let rows = try all(Tables.remembered, .id(id)) {
      (name: $0.text(0), value: $0.bytes(1))
    }
    for row in rows { memory[row.name] = row.value }
    return memory
  }
}
#endif
