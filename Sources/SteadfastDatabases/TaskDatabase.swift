package import SteadfastQueue

/// A connection to a database with the tables of a store.
///
/// Both stores run the same statements, which are written in PostgreSQL's SQL. SQLite's connection
/// replaces the words that SQLite spells differently. In a statement, `/*sqlite … */` encloses what
/// only SQLite reads, such as the name of an index. `/*-*/ … /*-*/` encloses what only PostgreSQL
/// reads, such as a condition that prevents its planner from reading a whole table.
package protocol TaskDatabase: AnyObject {
  associatedtype ResultRow: TaskRow

  /// The expressions for the columns in ``TaskColumns``.
  static var columns: String { get }

  /// The statement that counts the tasks by queue, name and state, at the date `$1`.
  ///
  /// The columns are those of ``TaskCensus/Row``. Several rows with the same queue, name and state
  /// are added together.
  static var census: String { get }

  /// Returns the values of `$1` with which a statement runs to concern each of the IDs.
  ///
  /// The statement has the condition `= any ($1)`. PostgreSQL gets one array. SQLite has no arrays,
  /// and no round trips either, and gets one ID after the other.
  static func lists(of ids: [TaskID]) -> [SQLValue]

  /// Runs a statement whose result is ignored, at the latest before the next result is needed.
  func send(_ sql: String, _ values: [SQLValue]) throws

  /// Runs a statement, and returns the number of rows that it changed.
  @discardableResult
  func run(_ sql: String, _ values: [SQLValue]) throws -> Int

  /// Runs a statement, and calls `body` with each row until `body` returns `false`.
  ///
  /// `body` must not run a statement with the same SQL.
  func forEachRow(
    of sql: String,
    _ values: [SQLValue],
    _ body: (ResultRow) throws -> Bool
  ) throws
}

extension TaskDatabase {
  package func send(_ sql: String, _ values: SQLValue...) throws { try send(sql, values) }

  /// Runs a statement for the IDs in `$1`; the values start with `$2`.
  package func send(_ sql: String, forEach ids: [TaskID], _ values: SQLValue...) throws {
    guard !ids.isEmpty else { return }
    for list in Self.lists(of: ids) { try send(sql, [list] + values) }
  }

  @discardableResult
  package func run(_ sql: String, _ values: SQLValue...) throws -> Int { try run(sql, values) }

  /// Reads the first row of a statement with `read`; returns `nil` if there is no row.
  ///
  /// The statement makes no changes, because it may not run to its end.
  package func first<Value>(
    _ sql: String,
    _ values: SQLValue...,
    read: (ResultRow) throws -> Value
  ) throws -> Value? {
    var value: Value?
    try forEachRow(of: sql, values) { row in
      value = try read(row)
      return false
    }
    return value
  }

  /// Returns whether a statement has a row.
  package func hasRow(_ sql: String, _ values: SQLValue...) throws -> Bool {
    var found = false
    try forEachRow(of: sql, values) { _ in
      found = true
      return false
    }
    return found
  }

  /// Reads each row of a statement with `read`.
  package func allRows<Value>(
    _ sql: String,
    _ values: [SQLValue],
    read: (ResultRow) throws -> Value
  ) throws -> [Value] {
    var found: [Value] = []
    try forEachRow(of: sql, values) { row in
      found.append(try read(row))
      return true
    }
    return found
  }

  package func allRows<Value>(
    _ sql: String,
    _ values: SQLValue...,
    read: (ResultRow) throws -> Value
  ) throws -> [Value] {
    try allRows(sql, values, read: read)
  }

  /// Reads each row of a statement for the IDs in `$1`; the values start with `$2`.
  package func allRows<Value>(
    _ sql: String,
    forEach ids: [TaskID],
    _ values: SQLValue...,
    read: (ResultRow) throws -> Value
  ) throws -> [Value] {
    guard !ids.isEmpty else { return [] }
    return try Self.lists(of: ids).flatMap { try allRows(sql, [$0] + values, read: read) }
  }

  /// Returns the IDs in the first column of a statement's rows.
  package func ids(_ sql: String, _ values: SQLValue...) throws -> [TaskID] {
    try allRows(sql, values) { $0.id(0) }.compactMap(\.self)
  }
}

/// The statements that are put together from parts, or whose plans a test checks.
package enum TaskStatements {}
