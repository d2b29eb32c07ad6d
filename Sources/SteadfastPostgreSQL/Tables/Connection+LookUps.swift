#if PostgreSQL
import SteadfastDatabases
import SteadfastQueue

/// Look-ups.
extension Connection: TaskLookUps {
  func tasks(
    matching filter: TaskFilter,
    after id: TaskID?,
    limit: Int
  ) throws -> [TaskRecord] {
    var condition = condition(filter)
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
    let condition = condition(filter)
    return try rows(
      "select count(*) from steadfast_task where \(condition.text)",
      condition.values
    ).map { $0.integer(0) }.first ?? 0
  }

  func contains(_ filter: TaskFilter) throws -> Bool {
    let (statement, values) = containing(filter)
    return try rows(statement, values).map { $0.flag(0) }.first ?? false
  }

  /// The statement that tells whether a task matches a filter.
  func containing(_ filter: TaskFilter) -> (statement: String, values: [SQLValue]) {
    let condition = condition(filter)
    let statement = "select exists (select 1 from steadfast_task where \(condition.text))"
    return (statement, condition.values)
  }

  func value(named name: String) throws -> [UInt8]? {
    // The server takes no NUL, and no value has such a name.
    guard !name.hasNUL else { return nil }
    return try first("select bytes from steadfast_value where name = $1", .text(name)) {
      $0.bytes(0)
    }
  }

  func memory(of id: TaskID) throws -> TaskMemory {
    var memory = TaskMemory()
    let rows = try all("select name, value from steadfast_memory where task_id = $1", .id(id)) {
      (name: $0.text(0), value: $0.bytes(1))
    }
    for row in rows { memory[row.name] = row.value }
    return memory
  }

  /// A condition in SQL, with its parameters in order.
  private struct Condition {
    var parts: [String] = []
    var values: [SQLValue] = []

    var text: String { parts.isEmpty ? "true" : parts.joined(separator: " and ") }

    /// Adds a part in which `$` stands for the value.
    mutating func add(_ part: String, _ value: SQLValue) {
      values.append(value)
      parts.append(part.replacing("$", with: "$\(values.count)"))
    }

    /// Adds a part in which `$` stands for texts.
    ///
    /// Those with a NUL are left out: the server takes none, and no row has one.
    mutating func add(_ part: String, _ texts: some Sequence<String>) {
      add(part, .texts(texts.filter { !$0.hasNUL }))
    }

    mutating func add(_ states: Set<TaskState>) {
      if states.isDisjoint(with: TaskState.ended) { parts.append("not has_ended") }
      if states.isSubset(of: TaskState.ended) { parts.append("has_ended") }
      if states == [.parked] {
        // The server uses the index of parked tasks only for a statement that names the state.
        parts.append("state = 'parked'")
      } else {
        add("state = any ($)", states.map(\.rawValue))
      }
    }
  }

  private func condition(_ filter: TaskFilter) -> Condition {
    var condition = Condition()
    if let ids = filter.ids { condition.add("id = any ($)", .ids(ids)) }
    if let queue = filter.queue {
      // As for other texts with a NUL, no row has one.
      if queue.hasNUL {
        condition.parts.append("false")
      } else {
        condition.add("queue = $", .text(queue))
      }
    }
    if let names = filter.names { condition.add("name = any ($)", names) }
    if !filter.excludedNames.isEmpty { condition.add("name <> all ($)", filter.excludedNames) }
    if let states = filter.states { condition.add(states) }
    if let keys = filter.uniqueKeys {
      condition.add(Self.isKey("unique_key", in: filter.queue), stored(keys, filter.queue))
    }
    if let keys = filter.orderKeys {
      condition.add(Self.isKey("order_key", in: filter.queue), stored(keys, filter.queue))
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

  /// The condition that a key is one of those that are given, in one queue or in any.
  private static func isKey(_ column: String, in queue: String?) -> String {
    queue == nil
      ? "substr(\(column), length(queue) + 2) = any ($)" : "\(column) = any ($)"
  }

  private func stored(_ keys: Set<String>, _ queue: String?) -> [String] {
    guard let queue else { return Array(keys) }
    return keys.map { StoredKey.text(of: $0, in: queue) }
  }
}
#endif
