#if SQLite
import CSQLite

/// A typical hand-written task queue on SQLite: a table, an index for the next task, and prepared
/// statements.
///
/// The queue is as durable as the file store: it flushes the write-ahead log at the end of each
/// transaction (`synchronous = FULL`). Only one thread can use it.
final class SQLite {
  private let database: OpaquePointer
  private var statements: [String: OpaquePointer] = [:]

  init(path: String) throws {
    var database: OpaquePointer?
    let result = sqlite3_open(path, &database)
    guard result == SQLITE_OK, let database else { throw Failed() }
    self.database = database
    try execute("PRAGMA journal_mode = WAL")
    try execute("PRAGMA synchronous = FULL")
    try execute(
      """
      CREATE TABLE tasks (
        seq INTEGER PRIMARY KEY, id BLOB NOT NULL UNIQUE, name TEXT NOT NULL,
        priority INTEGER NOT NULL, created REAL NOT NULL, available REAL NOT NULL,
        state INTEGER NOT NULL DEFAULT 0, payload TEXT NOT NULL)
      """
    )
    try execute("CREATE INDEX next ON tasks (state, priority DESC, available, seq)")
  }

  deinit {
    for statement in statements.values { sqlite3_finalize(statement) }
    sqlite3_close(database)
  }

  /// Adds tasks in one transaction.
  func enqueue(_ numbers: Range<Int>, now: Double) throws {
    try transaction {
      for number in numbers {
        let statement = try preparedStatement(
          """
          INSERT INTO tasks (id, name, priority, created, available, payload)
          VALUES (randomblob(16), 'Increment', 0, ?1, ?1, ?2)
          """
        )
        sqlite3_bind_double(statement, 1, now)
        let payload = #"{"number":\#(number)}"#
        // SQLITE_TRANSIENT: the text is copied.
        let transient = unsafeBitCast(-1, to: sqlite3_destructor_type.self)
        sqlite3_bind_text(statement, 2, payload, -1, transient)
        try run(statement, expecting: SQLITE_DONE)
      }
    }
  }

  /// Claims the next tasks in one transaction and completes them in another.
  func perform(_ count: Int, now: Double) throws {
    let ids = try transaction {
      let statement = try preparedStatement(
        """
        UPDATE tasks SET state = 1 WHERE seq IN (
          SELECT seq FROM tasks WHERE state = 0 AND available <= ?1
          ORDER BY priority DESC, available, seq LIMIT ?2)
        RETURNING seq, payload
        """
      )
      sqlite3_bind_double(statement, 1, now)
      sqlite3_bind_int(statement, 2, Int32(count))
      var ids: [Int64] = []
      while sqlite3_step(statement) == SQLITE_ROW {
        ids.append(sqlite3_column_int64(statement, 0))
        consume(sqlite3_column_text(statement, 1))
      }
      sqlite3_reset(statement)
      guard ids.count == count else { throw Failed() }
      return ids
    }
    try transaction {
      let statement = try preparedStatement("DELETE FROM tasks WHERE seq = ?1")
      for id in ids {
        sqlite3_bind_int64(statement, 1, id)
        try run(statement, expecting: SQLITE_DONE)
      }
    }
  }

  private func transaction<Result>(_ body: () throws -> Result) throws -> Result {
    try run(try preparedStatement("BEGIN IMMEDIATE"), expecting: SQLITE_DONE)
    let result = try body()
    try run(try preparedStatement("COMMIT"), expecting: SQLITE_DONE)
    return result
  }

  private func preparedStatement(_ text: String) throws -> OpaquePointer {
    if let statement = statements[text] { return statement }
    var statement: OpaquePointer?
    guard sqlite3_prepare_v2(database, text, -1, &statement, nil) == SQLITE_OK, let statement
    else { throw Failed() }
    statements[text] = statement
    return statement
  }

  private func run(_ statement: OpaquePointer, expecting end: Int32) throws {
    let result = sqlite3_step(statement)
    sqlite3_reset(statement)
    guard result == end else { throw Failed() }
  }

  private func execute(_ text: String) throws {
    guard sqlite3_exec(database, text, nil, nil, nil) == SQLITE_OK else { throw Failed() }
  }
}
#endif
