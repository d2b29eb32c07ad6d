#if SQLite
import SteadfastDatabases
import SteadfastQueue

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// Look-ups.
extension Connection: TaskLookUps {
  func tasks(
    matching filter: TaskFilter,
    after id: TaskID?,
    limit: Int
  ) throws -> [TaskRecord] {
    var condition = try condition(filter)
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
    let condition = try conditionInNoOrder(filter)
    return try rows(
      ofOnce: "select count(*) from \(condition.table) where \(condition.text)",
      condition.values
    ) { $0.integer(0) }.first ?? 0
  }

  func contains(_ filter: TaskFilter) throws -> Bool {
    let (statement, values) = try containing(filter)
    return try rows(ofOnce: statement, values) { $0.flag(0) }.first ?? false
  }

  /// The statement that tells whether a task matches a filter.
  func containing(_ filter: TaskFilter) throws -> (statement: String, values: [SQLValue]) {
    let condition = try conditionInNoOrder(filter)
    let statement = "select exists (select 1 from \(condition.table) where \(condition.text))"
    return (statement, condition.values)
  }

  /// The condition of a look-up that need not read the tasks in the order of their IDs.
  private func conditionInNoOrder(_ filter: TaskFilter) throws -> Condition {
    var condition = try condition(filter)
    if filter.states?.isSubset(of: TaskState.ended) == true {
      condition.parts.append("has_ended")
      if filter.ids == nil { condition.index = condition.index ?? "steadfast_ended" }
    }
    if filter.states == [.parked] {
      // An index of some rows is used only for a statement that names what they have.
      condition.parts.append("state = 'parked'")
      if filter.ids == nil { condition.index = condition.index ?? "steadfast_parked" }
    }
    return condition
  }

  /// A condition in SQL, with its parameters in order.
  private struct Condition {
    var parts: [String] = []
    var values: [SQLValue] = []
    /// The index to use; `nil` if SQLite chooses.
    ///
    /// It would choose another way if it counted the rows of the table while that was small.
    var index: String?

    var table: String { index.map { "steadfast_task indexed by \($0)" } ?? "steadfast_task" }

    var text: String { parts.isEmpty ? "1" : parts.joined(separator: " and ") }

    mutating func add(_ part: String, _ values: SQLValue...) {
      parts.append(part)
      self.values += values
    }

    mutating func add(_ part: String, _ texts: some Collection<String>) {
      add(part, .text(StoredTexts.json(of: texts)))
    }
  }

  private func condition(_ filter: TaskFilter) throws -> Condition {
    var condition = Condition()
    if let ids = filter.ids { condition.parts.append(try want(ids)) }
    // The rows are read in the order of their IDs; the plus sign keeps an index of queues out.
    if let queue = filter.queue { condition.add("+queue = ?", .text(queue)) }
    let among = "in (select value from json_each(?))"
    if let names = filter.names { condition.add("+name \(among)", names) }
    if !filter.excludedNames.isEmpty { condition.add("name not \(among)", filter.excludedNames) }
    if let states = filter.states {
      if states.isDisjoint(with: TaskState.ended) { condition.parts.append("not has_ended") }
      condition.add("+state \(among)", states.map(\.rawValue))
    }
    if let keys = filter.uniqueKeys {
      condition.add(Self.isKey("unique_key", in: filter.queue), stored(keys, filter.queue))
      if filter.queue != nil, filter.ids == nil { condition.index = "steadfast_key" }
    }
    if let keys = filter.orderKeys {
      condition.add(Self.isKey("order_key", in: filter.queue), stored(keys, filter.queue))
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

  /// The condition that a key is one of those that are given, in one queue or in any.
  private static func isKey(_ column: String, in queue: String?) -> String {
    let given = "in (select value from json_each(?))"
    return "\(queue == nil ? StoredKey.key(inColumn: column) : column) \(given)"
  }

  private func stored(_ keys: Set<String>, _ queue: String?) -> [String] {
    guard let queue else { return Array(keys) }
    return keys.map { StoredKey.text(of: $0, in: queue) }
  }

  /// Lists IDs in a table of this connection alone, and returns the condition that a task is one.
  private func want(_ ids: Set<TaskID>) throws -> String {
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
#endif
