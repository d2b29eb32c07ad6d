#if PostgreSQL
import SteadfastDatabases
import SteadfastQueue

/// The tables within a transaction of one thread.
final class Tables: TaskTables {
  let database: Connection
  /// Whether several stores may use the tables; if so, claims expire.
  let isShared: Bool
  /// The first of the two numbers that identify an advisory lock, for each kind of lock.
  struct Locks {
    /// For order keys.
    var orders: Int64 = 1
    /// For stored values.
    var values: Int64 = 2
    /// For unique keys.
    var keys: Int64 = 3
  }

  let locks: Locks
  /// Whether the transaction makes changes.
  var hasChanged = false
  /// Whether tasks that the changes do not name may have become available.
  var hasFreedOthers = false
  var changedOrderKeys: [String] = []
  var newMembers: [TaskRecord] = []

  init(_ database: Connection, isShared: Bool, locks: Locks = Locks()) {
    self.database = database
    self.isShared = isShared
    self.locks = locks
  }

  static let nextPosition = "nextval('steadfast_place')"

  // MARK: Order keys

  func updateTurnsOfChangedOrderKeys() throws {
    for key in Set(changedOrderKeys.map(ExactText.init)).map(\.text) {
      try database.send(
        """
        update steadfast_task set has_turn = false
        where order_key = $1 and has_turn and state <> 'running'
          and id is distinct from (
            select first.id from steadfast_task as first
            where first.order_key = $1 and first.in_order
            order by first.order_number limit 1)
        """,
        .text(key)
      )
      try database.send(
        """
        update steadfast_task set has_turn = true
        where id = (
            select first.id from steadfast_task as first
            where first.order_key = $1 and first.in_order
            order by first.order_number limit 1)
          and not exists (
            select 1 from steadfast_task as other where other.order_key = $1 and other.has_turn)
        """,
        .text(key)
      )
    }
    if !changedOrderKeys.isEmpty { hasFreedOthers = true }
    changedOrderKeys = []
  }
}

/// Reading and updating the task of a change.
extension Tables {
  func entry(of id: TaskID) throws -> TaskEntry? {
    // The transaction has already locked the tasks that its changes name. Only a task that another
    // session has inserted since then is not locked yet, and no change can refer to that task.
    try database.first(
      """
      select \(TaskEntry.columns),
        exists (select 1 from steadfast_dependency where dependency = $1 and is_named)
      from steadfast_task where id = $1 for update
      """,
      .id(id)
    ) { row in try TaskEntry(id, row) }
  }

  func promoteSuccessor(ofKey key: String, taskName name: String) throws {
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

  /// Stores a failure as the last failure of a task.
  func recordFailure(_ failure: TaskFailure, of entry: TaskEntry) throws {
    let earlier = try database.first(
      "select last_error, failed_date, earlier_failures from steadfast_task where id = $1",
      .id(entry.id),
      read: StoredFailures.jsonWithLastFailure
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

/// Reading tasks.
extension Connection {
  /// The columns that `record(_:)` reads.
  static let columns = TaskColumns.names.map { "task.\($0)" }.joined(separator: ", ")

  /// Returns the task in a row, with its dependencies.
  ///
  /// - Throws: An ``UnreadableRow`` that names the task.
  func record(_ row: Row) throws -> TaskRecord {
    try row.record { id in
      try allRows(
        """
        select dependency, is_named, failed from steadfast_dependency
        where dependent = $1 and (is_named or failed is not null) order by dependency
        """,
        .id(id),
        read: StoredDependency.init
      )
    }
  }
}

/// Look-ups.
extension Connection: TaskLookUps {
  func tasks(
    matching filter: TaskFilter,
    after id: TaskID?,
    limit: Int
  ) throws -> [TaskRecord] {
    var condition = condition(for: filter)
    if let id { condition.add("id > $", .id(id)) }
    condition.values.append(.integer(max(0, limit)))
    return try rows(
      """
      select \(Self.columns) from steadfast_task as task where \(condition.text)
      order by id limit $\(condition.values.count)
      """,
      condition.values
    ).map(record)
  }

  func count(matching filter: TaskFilter) throws -> Int {
    let condition = condition(for: filter)
    return try rows(
      "select count(*) from steadfast_task where \(condition.text)",
      condition.values
    ).map { $0.integer(0) }.first ?? 0
  }

  func contains(_ filter: TaskFilter) throws -> Bool {
    let (statement, values) = existenceStatement(for: filter)
    return try rows(statement, values).map { $0.flag(0) }.first ?? false
  }

  /// Returns the statement that checks whether any task matches a filter.
  func existenceStatement(for filter: TaskFilter) -> (statement: String, values: [SQLValue]) {
    let condition = condition(for: filter)
    let statement = "select exists (select 1 from steadfast_task where \(condition.text))"
    return (statement, condition.values)
  }

  func value(named name: String) throws -> [UInt8]? {
    // The server does not store a NUL, so no value has such a name.
    guard !name.hasNUL else { return nil }
    return try first("select bytes from steadfast_value where name = $1", .text(name)) {
      $0.bytes(0)
    }
  }

  func values(prefix: String) throws -> [(name: String, bytes: [UInt8])] {
    guard !prefix.hasNUL else { return [] }
    return try allRows(
      "select name, bytes from steadfast_value where name between $1 and $2 order by name",
      .text(prefix),
      .text(prefix.endOfPrefix)
    ) { (name: $0.text(0), bytes: $0.bytes(1)) }
  }

  func memory(of id: TaskID) throws -> TaskMemory {
    var memory = TaskMemory()
    let rows = try allRows("select name, value from steadfast_memory where task_id = $1", .id(id)) {
      (name: $0.text(0), value: $0.bytes(1))
    }
    for row in rows { memory[row.name] = row.value }
    return memory
  }

  /// A condition in SQL, with its parameters in order.
  private struct Condition {
    var conditions: [String] = []
    var values: [SQLValue] = []

    var text: String { conditions.isEmpty ? "true" : conditions.joined(separator: " and ") }

    /// Adds an SQL condition in which `$` stands for the value.
    mutating func add(_ condition: String, _ value: SQLValue) {
      values.append(value)
      conditions.append(condition.replacing("$", with: "$\(values.count)"))
    }

    /// Adds an SQL condition in which `$` stands for the array of strings.
    ///
    /// Strings with a NUL are left out: the server does not store a NUL, so no row contains such a
    /// string.
    mutating func add(_ condition: String, _ strings: some Sequence<String>) {
      add(condition, .texts(strings.filter { !$0.hasNUL }))
    }

    mutating func add(_ states: Set<TaskState>) {
      if states.isDisjoint(with: TaskState.ended) { conditions.append("not has_ended") }
      if states.isSubset(of: TaskState.ended) { conditions.append("has_ended") }
      if states == [.parked] {
        // The server uses the index of parked tasks only for a statement that names the state.
        conditions.append("state = 'parked'")
      } else {
        add("state = any ($)", states.map(\.rawValue))
      }
    }
  }

  private func condition(for filter: TaskFilter) -> Condition {
    var condition = Condition()
    if let ids = filter.ids { condition.add("id = any ($)", .ids(ids)) }
    if let queue = filter.queue {
      // The server does not store a NUL, so no queue has such a name.
      if queue.hasNUL {
        condition.conditions.append("false")
      } else {
        condition.add("queue = $", .text(queue))
      }
    }
    if let names = filter.names { condition.add("name = any ($)", names) }
    if !filter.excludedNames.isEmpty { condition.add("name <> all ($)", filter.excludedNames) }
    if let states = filter.states { condition.add(states) }
    if let keys = filter.uniqueKeys {
      condition.add(
        Self.keyCondition("unique_key", in: filter.queue),
        storedKeys(keys, in: filter.queue)
      )
    }
    if let keys = filter.orderKeys {
      condition.add(
        Self.keyCondition("order_key", in: filter.queue),
        storedKeys(keys, in: filter.queue)
      )
    }
    if let met = filter.unmetBy {
      condition.add("not conditions <@ $::text[]", met.map(\.rawValue))
    }
    if let tags = filter.tags { condition.add("tags && $::text[]", tags) }
    if let isPostponed = filter.isPostponed { condition.add("put_off = $", .flag(isPostponed)) }
    if let remembers = filter.remembers {
      condition.add("(memory_size > 0) = $", .flag(remembers))
    }
    if let dates = filter.availableDates {
      condition.add("available_date >= $", .date(dates.lowerBound))
      condition.add("available_date < $", .date(dates.upperBound))
    }
    return condition
  }

  /// Returns the condition that the key in a column is one of a list of keys.
  ///
  /// If `queue` is `nil`, the condition ignores the queue of the stored key.
  private static func keyCondition(_ column: String, in queue: String?) -> String {
    queue == nil
      ? "substr(\(column), length(queue) + 2) = any ($)" : "\(column) = any ($)"
  }

  /// Returns keys as they are stored for a queue; without a queue, the keys themselves.
  private func storedKeys(_ keys: Set<String>, in queue: String?) -> [String] {
    guard let queue else { return Array(keys) }
    return keys.map { StoredKey.string(for: $0, in: queue) }
  }
}
#endif
