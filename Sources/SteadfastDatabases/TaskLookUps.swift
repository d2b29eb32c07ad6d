package import SteadfastQueue
import SystemFoundation

/// Look-ups of tasks and values.
extension TaskDatabase {
  /// Performs a call that only reads.
  package func performLookUp(_ call: StoreJob.Call) throws -> StoreJob.Output {
    switch call {
    case .tasks(let filter, let id, let limit, let newestFirst):
      .tasks(try tasks(matching: filter, after: id, limit: limit, newestFirst: newestFirst))
    case .count(let filter): .count(try count(matching: filter))
    case .contains(let filter): .contains(try contains(filter))
    case .census(let date): .census(try census(at: date))
    case .value(let name): .value(try value(named: name))
    case .values(let prefix): .values(try values(prefix: prefix))
    case .memory(let id): .memory(try memory(of: id))
    case .open, .apply, .claim, .close, .destroy: .nothing
    }
  }

  /// Returns the task in a row, with its dependencies.
  ///
  /// - Throws: An ``UnreadableRow`` that names the task.
  package func record(_ row: ResultRow) throws -> TaskRecord {
    try row.record { id in
      try allRows(
        """
        select dependency, is_named, failed
        from steadfast_dependency /*sqlite indexed by steadfast_dependent */
        where dependent = $1 and (is_named or failed is not null) order by dependency
        """,
        .id(id)
      ) { StoredDependency($0) }
    }
  }

  private func tasks(
    matching filter: TaskFilter,
    after id: TaskID?,
    limit: Int,
    newestFirst: Bool
  ) throws -> [TaskRecord] {
    var condition = FilterCondition(filter, readsInOrder: true)
    if let id { condition.add(newestFirst ? "id < $" : "id > $", .id(id)) }
    condition.values.append(.integer(max(0, limit)))
    return try allRows(
      """
      select \(Self.columns) from steadfast_task as task \(condition.text)
      order by id \(newestFirst ? "desc " : "")limit $\(condition.values.count)
      """,
      condition.values,
      read: record
    )
  }

  private func count(matching filter: TaskFilter) throws -> Int {
    let condition = FilterCondition(filter)
    return try allRows("select count(*) from steadfast_task \(condition.text)", condition.values) {
      $0.integer(0)
    }.first ?? 0
  }

  private func contains(_ filter: TaskFilter) throws -> Bool {
    let (statement, values) = existenceStatement(for: filter)
    return try allRows(statement, values) { $0.flag(0) }.first ?? false
  }

  /// Returns the statement that checks whether any task matches a filter.
  package func existenceStatement(
    for filter: TaskFilter
  ) -> (statement: String, values: [SQLValue]) {
    let condition = FilterCondition(filter)
    return ("select exists (select 1 from steadfast_task \(condition.text))", condition.values)
  }

  private func census(at date: Date) throws -> TaskCensus {
    let rows = try allRows(Self.census, .date(date)) { row in
      TaskCensus.Row(
        queue: row.text(0),
        name: row.text(1),
        state: try row.state(2),
        count: row.integer(3),
        due: row.integer(4),
        retrying: row.integer(5),
        oldestDue: row.unlessNull(6, row.date)
      )
    }
    return TaskCensus(date: date, rows: rows)
  }

  func value(named name: String) throws -> [UInt8]? {
    // PostgreSQL does not store a NUL, so no value has such a name.
    guard !name.hasNUL else { return nil }
    return try first("select bytes from steadfast_value where name = $1", .text(name)) {
      $0.bytes(0)
    }
  }

  private func values(prefix: String) throws -> [(name: String, bytes: [UInt8])] {
    guard !prefix.hasNUL else { return [] }
    return try allRows(
      "select name, bytes from steadfast_value where name between $1 and $2 order by name",
      .text(prefix),
      .text(prefix.endOfPrefix)
    ) { (name: $0.text(0), bytes: $0.bytes(1)) }
  }

  private func memory(of id: TaskID) throws -> TaskMemory {
    var memory = TaskMemory()
    let rows = try allRows(TaskStatements.memory, forEach: [id]) {
      (name: $0.text(0), value: $0.bytes(1))
    }
    for row in rows { memory[row.name] = row.value }
    return memory
  }
}

extension String {
  /// The end of the names of values with this prefix: none of them sorts after this string, because
  /// they have at most 1,024 bytes.
  fileprivate var endOfPrefix: String { self + String(repeating: "\u{10ffff}", count: 256) }
}

/// The condition that a task matches a filter.
private struct FilterCondition {
  private var conditions: [String] = []
  /// The parameters of the condition, in order.
  var values: [SQLValue] = []
  /// The index that SQLite uses; `nil` if SQLite chooses.
  ///
  /// SQLite would choose another index, or none, if its statistics said that the table is small.
  private var index: String?

  /// The end of a statement that reads the tasks.
  var text: String {
    (index.map { "/*sqlite indexed by \($0) */ where " } ?? "where ")
      + (conditions.isEmpty ? "true" : conditions.joined(separator: " and "))
  }

  /// Adds an SQL condition in which `$` stands for the value.
  mutating func add(_ condition: String, _ value: SQLValue) {
    values.append(value)
    conditions.append(condition.replacing("$", with: "$\(values.count)"))
  }

  /// Adds an SQL condition in which `$` stands for the array of strings.
  ///
  /// Strings with a NUL are left out: no row contains such a string, because PostgreSQL does not
  /// store a NUL. Some versions of SQLite would match the characters before the NUL.
  private mutating func add(_ condition: String, _ strings: some Sequence<String>) {
    add(condition, .texts(strings.filter { !$0.hasNUL }))
  }

  /// The sign that prevents SQLite from finding tasks by the column after it, to read the tasks in
  /// the order of their IDs.
  private static let plus = "/*sqlite + */"

  /// Creates a condition; with `readsInOrder`, the tasks are read in the order of their IDs.
  init(_ filter: TaskFilter, readsInOrder: Bool = false) {
    if let ids = filter.ids { add("id = any ($::uuid[])", .ids(ids)) }
    if let queue = filter.queue {
      if queue.hasNUL {
        conditions.append("false")
      } else {
        add("\(Self.plus)queue = $", .text(queue))
      }
    }
    if let names = filter.names { add("\(Self.plus)name = any ($::text[])", names) }
    if !filter.excludedNames.isEmpty { add("name <> all ($::text[])", filter.excludedNames) }
    addKeys(of: filter)
    if let states = filter.states {
      add(states, readsInOrder: readsInOrder, isBroad: filter.ids == nil)
    }
    if let met = filter.unmetBy { add("not conditions <@ $::text[]", met.map(\.rawValue)) }
    if let versions = filter.unhandledBy {
      // Most handlers have the same version.
      let names = Dictionary(grouping: versions.keys) { versions[$0] ?? .max }
      for (version, names) in names.sorted(by: { $0.key < $1.key }) {
        add("not (name = any ($::text[]) and schema_version <= \(version))", names)
      }
    }
    if let tags = filter.tags { add("tags && $::text[]", tags) }
    if let metadata = filter.metadata { add(metadata) }
    if let isPostponed = filter.isPostponed { add("put_off = $", .flag(isPostponed)) }
    if let remembers = filter.remembers { add("(memory_size > 0) = $", .flag(remembers)) }
    if let hasCommand = filter.hasCommand {
      conditions.append(hasCommand ? "command is not null" : "command is null")
      if hasCommand, filter.ids == nil { index = "steadfast_command" }
    }
    if let dates = filter.availableDates {
      add("available_date >= $", .date(dates.lowerBound))
      add("available_date < $", .date(dates.upperBound))
    }
    if let dates = filter.failedDates {
      add("failed_date >= $", .date(dates.lowerBound))
      add("failed_date < $", .date(dates.upperBound))
    }
  }

  /// Adds the condition that a task has all of these keys and values in its metadata.
  ///
  /// No row contains a NUL, because PostgreSQL does not store it.
  private mutating func add(_ metadata: [String: String]) {
    if metadata.contains(where: { $0.key.hasNUL || $0.value.hasNUL }) {
      conditions.append("false")
    } else if !metadata.isEmpty {
      add("metadata @> $::text::jsonb", .text(StoredMetadata.json(of: metadata)))
    }
  }

  /// Adds the conditions for the keys of a filter.
  ///
  /// Without a queue, the condition ignores the queue of a stored key.
  private mutating func addKeys(of filter: TaskFilter) {
    for (column, keys) in [("unique_key", filter.uniqueKeys), ("order_key", filter.orderKeys)] {
      guard let keys else { continue }
      if let queue = filter.queue {
        add("\(column) = any ($::text[])", keys.map { StoredKey.string(for: $0, in: queue) })
      } else {
        add("substr(\(column), length(queue) + 2) = any ($::text[])", keys)
      }
    }
    if filter.uniqueKeys != nil, filter.queue != nil, filter.ids == nil { index = "steadfast_key" }
  }

  /// Adds the condition that a task has one of the states.
  ///
  /// A database uses a partial index only if the statement contains the index's condition.
  private mutating func add(_ states: Set<TaskState>, readsInOrder: Bool, isBroad: Bool) {
    let plus = readsInOrder ? Self.plus : ""
    let usesIndex = !readsInOrder && isBroad && index == nil
    if states.isDisjoint(with: TaskState.ended) { conditions.append("not has_ended") }
    if states.isSubset(of: TaskState.ended) {
      conditions.append("\(plus)has_ended")
      if usesIndex { index = "steadfast_ended" }
    }
    if states == [.parked] {
      conditions.append("\(plus)state = 'parked'")
      if usesIndex { index = "steadfast_parked" }
    } else {
      add("\(Self.plus)state = any ($::text[])", states.map(\.rawValue))
    }
  }
}
