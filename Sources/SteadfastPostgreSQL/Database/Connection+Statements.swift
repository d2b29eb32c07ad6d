#if PostgreSQL
import SteadfastQueue

/// Statements whose results are wanted at once.
extension Connection {
  /// Runs a statement, and returns its rows.
  func rows(_ sql: String, _ values: [SQLValue]) throws(PostgreSQLFailure) -> Rows {
    try send(sql, values, isWanted: true)
    guard let rows = try flush().last else {
      throw PostgreSQLFailure(state: "08P01", text: "the server has sent no result")
    }
    return rows
  }

  /// Runs a statement, and returns how many rows it has changed.
  func run(_ sql: String, _ values: SQLValue...) throws(PostgreSQLFailure) -> Int {
    try rows(sql, values).changedCount
  }

  /// Returns what `read` makes of the first row; `nil` if there is none.
  func first<Value>(
    _ sql: String,
    _ values: SQLValue...,
    read: (Row) throws -> Value
  ) throws -> Value? {
    let rows = try rows(sql, values)
    return rows.count > 0 ? try read(rows[0]) : nil
  }

  /// Returns whether there is a row.
  func has(_ sql: String, _ values: SQLValue...) throws -> Bool {
    try rows(sql, values).count > 0
  }

  /// Returns what `read` makes of each row.
  func all<Value>(
    _ sql: String,
    _ values: SQLValue...,
    read: (Row) throws -> Value
  ) throws -> [Value] {
    try rows(sql, values).map(read)
  }

  /// Returns the IDs in the first column.
  func ids(_ sql: String, _ values: SQLValue...) throws -> [TaskID] {
    try rows(sql, values).map { $0.id(0) }.compactMap(\.self)
  }
}

extension Rows {
  /// Returns what `read` makes of each row.
  func map<Value>(_ read: (Row) throws -> Value) rethrows -> [Value] {
    try (0..<count).map { try read(self[$0]) }
  }
}
#endif
