#if SQLite
import SteadfastDatabases
import SteadfastQueue
import SystemFoundation

/// The tables within a transaction of the writer thread.
final class Tables: TaskTables {
  let database: Connection
  /// Whether several stores may use the tables; if so, claims expire.
  let isShared: Bool
  /// The clock that decides when claims expire, in seconds since 1970.
  let clock: @Sendable () -> Double
  var changedOrderKeys: [String] = []
  var newMembers: [TaskRecord] = []

  init(_ database: Connection, isShared: Bool, clock: @escaping @Sendable () -> Double) {
    self.database = database
    self.isShared = isShared
    self.clock = clock
  }

  var changedRowCount: Int? { database.changeCount }

  /// A number that is greater than every `seq`.
  ///
  /// SQLite finds the largest `seq` at the end of the table. Without `not indexed`, SQLite would
  /// read a whole index if the statistics said that the table is small.
  static let nextPosition = "(select coalesce(max(seq), 0) + 1 from steadfast_task not indexed)"

  // MARK: Order keys

  func updateTurnsOfChangedOrderKeys() throws {
    for key in Set(changedOrderKeys.map(ExactText.init)).map(\.text) {
      try database.run(
        """
        update steadfast_task set has_turn = 0
        where order_key = ?1 and has_turn and state <> 'running'
          and seq is not (
            select seq from steadfast_task where order_key = ?1 and in_order
            order by order_number limit 1)
        """,
        .text(key)
      )
      try database.run(
        """
        update steadfast_task set has_turn = 1
        where seq = (
            select seq from steadfast_task where order_key = ?1 and in_order
            order by order_number limit 1)
          and not exists (
            select 1 from steadfast_task as other where other.order_key = ?1 and other.has_turn)
        """,
        .text(key)
      )
    }
    changedOrderKeys = []
  }
}

/// Reading and updating the task of a change.
extension Tables {
  func entry(of id: TaskID) throws -> TaskEntry? {
    try database.first(
      """
      select \(TaskEntry.columns),
        exists (select 1 from steadfast_dependency where dependency = ?1 and is_named),
        seq
      from steadfast_task where id = ?1
      """,
      .id(id)
    ) { row in try TaskEntry(id, row, hasNumber: true) }
  }

  func promoteSuccessor(ofKey key: String, taskName name: String) throws {
    try database.run(
      """
      update steadfast_task set key_role = 'holder'
      where name = ?1 and unique_key = ?2 and key_role = 'successor'
        and not exists (
          select 1 from steadfast_task as other
          where other.name = ?1 and other.unique_key = ?2 and other.key_role = 'holder')
      """,
      .text(name),
      .text(key)
    )
  }

  /// Stores a failure as the last failure of a task.
  func recordFailure(_ failure: TaskFailure, of entry: TaskEntry) throws {
    let earlier = try database.first(
      "select last_error, failed_date, earlier_failures from steadfast_task where seq = ?1",
      entry.seq,
      read: StoredFailures.jsonWithLastFailure
    )
    try database.run(
      """
      update steadfast_task set last_error = ?2, failed_date = ?3, earlier_failures = ?4
      where seq = ?1
      """,
      entry.seq,
      .text(failure.reason),
      .date(failure.date),
      .text(earlier ?? nil)
    )
  }
}

extension TaskEntry {
  /// The number of the row.
  var seq: SQLValue { .integer(rowNumber) }
}

/// Reading tasks.
extension Connection {
  /// The columns that `record(_:)` reads.
  static let columns = TaskColumns.names.map { name in
    // A long payload has a separate row.
    name == "payload"
      ? "coalesce(payload, (select bytes from steadfast_payload where task_id = id))" : name
  }.joined(separator: ", ")

  /// Returns the task in a row, with its dependencies.
  ///
  /// - Throws: An ``UnreadableRow`` that names the task.
  func record(_ row: Statement) throws -> TaskRecord {
    try row.record { id in
      try allRows(
        """
        select dependency, is_named, failed
        from steadfast_dependency indexed by steadfast_dependent
        where dependent = ?1 and (is_named or failed is not null) order by dependency
        """,
        .id(id),
        read: StoredDependency.init
      )
    }
  }

  /// Returns the task with an ID; `nil` if no task has the ID.
  func record(of id: TaskID) throws -> TaskRecord? {
    try first("select \(Self.columns) from steadfast_task where id = ?1", .id(id), read: record)
  }
}

/// Look-ups.
extension Connection: TaskLookUps {
  func tasks(
    matching filter: TaskFilter,
    after id: TaskID?,
    limit: Int
  ) throws -> [TaskRecord] {
    var condition = try condition(for: filter)
    if let id { condition.add("id > ?", .id(id)) }
    return try rows(
      ofOnce: """
        select \(Self.columns) from \(condition.table) where \(condition.text)
        order by id limit \(max(0, limit))
        """,
      condition.values,
      read: record
    )
  }

  func count(matching filter: TaskFilter) throws -> Int {
    let condition = try unorderedCondition(for: filter)
    return try rows(
      ofOnce: "select count(*) from \(condition.table) where \(condition.text)",
      condition.values
    ) { $0.integer(0) }.first ?? 0
  }

  func contains(_ filter: TaskFilter) throws -> Bool {
    let (statement, values) = try existenceStatement(for: filter)
    return try rows(ofOnce: statement, values) { $0.flag(0) }.first ?? false
  }

  /// Returns the statement that checks whether any task matches a filter.
  func existenceStatement(
    for filter: TaskFilter
  ) throws -> (statement: String, values: [SQLValue]) {
    let condition = try unorderedCondition(for: filter)
    let statement = "select exists (select 1 from \(condition.table) where \(condition.text))"
    return (statement, condition.values)
  }

  /// Returns the condition of a look-up that may read the tasks in any order.
  private func unorderedCondition(for filter: TaskFilter) throws -> Condition {
    var condition = try condition(for: filter)
    if filter.states?.isSubset(of: TaskState.ended) == true {
      condition.conditions.append("has_ended")
      if filter.ids == nil { condition.index = condition.index ?? "steadfast_ended" }
    }
    if filter.states == [.parked] {
      // SQLite uses a partial index only if the statement contains the index's condition.
      condition.conditions.append("state = 'parked'")
      if filter.ids == nil { condition.index = condition.index ?? "steadfast_parked" }
    }
    return condition
  }

  /// A condition in SQL, with its parameters in order.
  private struct Condition {
    var conditions: [String] = []
    var values: [SQLValue] = []
    /// The index to use; `nil` if SQLite chooses.
    ///
    /// SQLite would choose another index, or none, if its statistics said that the table is small.
    var index: String?

    var table: String { index.map { "steadfast_task indexed by \($0)" } ?? "steadfast_task" }

    var text: String { conditions.isEmpty ? "1" : conditions.joined(separator: " and ") }

    /// Adds an SQL condition with the values of its parameters.
    mutating func add(_ condition: String, _ values: SQLValue...) {
      conditions.append(condition)
      self.values += values
    }

    /// Adds an SQL condition with one parameter, the strings as a JSON array.
    mutating func add(_ condition: String, _ strings: some Collection<String>) {
      add(condition, .text(StoredStrings.json(of: strings)))
    }
  }

  private func condition(for filter: TaskFilter) throws -> Condition {
    var condition = Condition()
    if let ids = filter.ids { condition.conditions.append(try conditionStoring(ids)) }
    // The rows are read in the order of their IDs. The plus sign prevents the use of another index.
    if let queue = filter.queue { condition.add("+queue = ?", .text(queue)) }
    let among = "in (select value from json_each(?))"
    if let names = filter.names { condition.add("+name \(among)", names) }
    if !filter.excludedNames.isEmpty { condition.add("name not \(among)", filter.excludedNames) }
    if let states = filter.states {
      if states.isDisjoint(with: TaskState.ended) { condition.conditions.append("not has_ended") }
      condition.add("+state \(among)", states.map(\.rawValue))
    }
    if let keys = filter.uniqueKeys {
      condition.add(
        Self.keyCondition("unique_key", in: filter.queue),
        storedKeys(keys, in: filter.queue)
      )
      if filter.queue != nil, filter.ids == nil { condition.index = "steadfast_key" }
    }
    if let keys = filter.orderKeys {
      condition.add(
        Self.keyCondition("order_key", in: filter.queue),
        storedKeys(keys, in: filter.queue)
      )
    }
    if let met = filter.unmetBy {
      condition.add(
        "exists (select 1 from json_each(conditions) where value not \(among))",
        met.map(\.rawValue)
      )
    }
    if let tags = filter.tags {
      condition.add("exists (select 1 from json_each(tags) where value \(among))", tags)
    }
    if let isPostponed = filter.isPostponed { condition.add("put_off = ?", .flag(isPostponed)) }
    if let remembers = filter.remembers { condition.add("(memory_size > 0) = ?", .flag(remembers)) }
    if let dates = filter.availableDates {
      condition.add(
        "available_date >= ? and available_date < ?",
        .date(dates.lowerBound),
        .date(dates.upperBound)
      )
    }
    return condition
  }

  /// Returns the condition that the key in a column is one of a list of keys.
  ///
  /// If `queue` is `nil`, the condition ignores the queue of the stored key.
  private static func keyCondition(_ column: String, in queue: String?) -> String {
    let given = "in (select value from json_each(?))"
    return "\(queue == nil ? StoredKey.keyExpression(column: column) : column) \(given)"
  }

  /// Returns keys as they are stored for a queue; without a queue, the keys themselves.
  private func storedKeys(_ keys: Set<String>, in queue: String?) -> [String] {
    guard let queue else { return Array(keys) }
    return keys.map { StoredKey.string(for: $0, in: queue) }
  }

  /// Stores IDs in a temporary table, and returns the condition that a task has one of the IDs.
  private func conditionStoring(_ ids: Set<TaskID>) throws -> String {
    try execute(
      """
      create temp table if not exists wanted (id blob primary key) without rowid;
      delete from temp.wanted;
      """
    )
    for id in ids { try run("insert into temp.wanted values (?1)", .id(id)) }
    return "id in (select id from temp.wanted)"
  }
}

/// Strings as a JSON array that statements can search.
enum StoredStrings {
  /// Returns the array; `nil` if there are no strings.
  static func nonEmptyJSON(of strings: some Collection<String>) -> String? {
    strings.isEmpty ? nil : json(of: strings)
  }

  /// Returns the array without the strings that contain a NUL.
  ///
  /// No row has such a string, but some versions of SQLite would match the characters before the
  /// NUL.
  static func json(of strings: some Collection<String>) -> String {
    let strings = strings.filter { !$0.hasNUL }
    // Strings can always be encoded.
    guard !strings.isEmpty, let data = try? JSONEncoder().encode(strings) else { return "[]" }
    return String(decoding: data, as: UTF8.self)
  }

  static func read(_ json: String?) throws -> [String] {
    guard let json else { return [] }
    do {
      return try JSONDecoder().decode([String].self, from: Data(json.utf8))
    } catch {
      throw UnreadableRow(column: "tags or conditions")
    }
  }
}

extension StoredKey {
  /// Returns the SQL expression for the key in a column without the name of its queue.
  ///
  /// The expression counts bytes, because SQLite stops counting characters at a NUL.
  static func keyExpression(column: String) -> String {
    "cast(substr(cast(\(column) as blob), length(cast(queue as blob)) + 2) as text)"
  }
}

extension Statement {
  func strings(_ column: Int32) throws -> [String] {
    try StoredStrings.read(unlessNull(column, text))
  }
}
#endif
