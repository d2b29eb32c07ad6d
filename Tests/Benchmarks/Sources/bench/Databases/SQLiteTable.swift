#if SQLite
import CSQLite
import SteadfastQueue
import SteadfastSQLite

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// SQLite in a separate file, which each commit flushes.
struct SQLiteDatabase: Database {
  let name = "SQLite"

  func withStore(_ body: (any Persistence, URL) async throws -> Void) async throws {
    try await withScratchFile { url in
      let store = SQLiteStore(at: url)
      try await store.open()
      try await body(store, url)
      try await store.close()
    }
  }

  func table(at place: URL) throws -> SQLiteTable { try SQLiteTable(path: place.path) }
}

/// The table of a SQLite store.
final class SQLiteTable: RawTable {
  struct Claimed {
    var rows: [Int64] = []
    let token: Int64
  }

  private let database: OpaquePointer
  private var statements: [String: OpaquePointer] = [:]
  private var isDurable = true

  init(path: String) throws {
    var database: OpaquePointer?
    guard sqlite3_open(path, &database) == SQLITE_OK, let database else { throw Failed() }
    self.database = database
    sqlite3_busy_timeout(database, 5_000)
    try execute("pragma synchronous = full")
  }

  deinit {
    for statement in statements.values { sqlite3_finalize(statement) }
    sqlite3_close(database)
  }

  private static let columns = """
    (id, name, queue, payload, format, schema_version, priority, created_date, available_date,
      uses_backoff, holds_order, dependency_rule, state, retry_count, interruption_count, put_off)
    """
  private static let values = """
    'Increment', '', ?2, 'json', 0, 0, ?3, ?3, 1, 0, 'allSucceeded', 'waiting', 0, 0, 0
    """

  func insert(_ numbers: Range<Int>) throws {
    try transaction {
      let statement = try preparedStatement(
        "insert into steadfast_task \(Self.columns) values (?1, \(Self.values))"
      )
      for number in numbers {
        var id = UUID().uuid
        sqlite3_bind_blob(statement, 1, &id, 16, transient)
        bindSharedValues(payload: #"{"number":\#(number)}"#, to: statement)
        try run(statement)
      }
    }
  }

  /// Binds the values that all insertions share.
  private func bindSharedValues(payload: String, to statement: OpaquePointer) {
    sqlite3_bind_blob(statement, 2, payload, Int32(payload.utf8.count), transient)
    sqlite3_bind_double(statement, 3, Date().timeIntervalSince1970)
  }

  func fill(_ count: Int) throws {
    try transaction {
      let statement = try preparedStatement(
        """
        with recursive number (n) as (select 1 union all select n + 1 from number where n < ?4)
        insert into steadfast_task \(Self.columns) select randomblob(16), \(Self.values) from number
        """
      )
      bindSharedValues(payload: #"{"number":1}"#, to: statement)
      sqlite3_bind_int64(statement, 4, Int64(count))
      try run(statement)
    }
    try execute("pragma wal_checkpoint(truncate)")
  }

  func claim(_ limit: Int) throws -> Claimed {
    var claimed = Claimed(token: Int64.random(in: 1...Int64.max))
    try transaction(isDurable: false) {
      let first = try preparedStatement(
        """
        select *, seq from steadfast_task
        where is_ready and queue = '' and rank = ~0
          and available_date <= ?1
        order by available_date, seq limit ?2
        """
      )
      sqlite3_bind_double(first, 1, Date().timeIntervalSince1970)
      sqlite3_bind_int(first, 2, Int32(limit))
      let place = sqlite3_column_count(first) - 1
      while sqlite3_step(first) == SQLITE_ROW {
        for column in 0..<place { consume(sqlite3_column_blob(first, column)) }
        claimed.rows.append(sqlite3_column_int64(first, place))
      }
      sqlite3_reset(first)
      guard claimed.rows.count == limit else { throw Failed(reason: "\(claimed.rows.count) tasks") }
      try executeForEachRow(
        of: claimed,
        "update steadfast_task set state = 'running', lease_token = ?2 where seq = ?1"
      )
    }
    return claimed
  }

  func complete(_ claimed: Claimed) throws {
    try transaction {
      try executeForEachRow(
        of: claimed,
        "delete from steadfast_task where seq = ?1 and lease_token = ?2"
      )
    }
  }

  func release(_ claimed: Claimed) throws {
    try transaction(isDurable: false) {
      try executeForEachRow(
        of: claimed,
        """
        update steadfast_task set state = 'waiting', lease_token = null
        where seq = ?1 and lease_token = ?2
        """
      )
    }
  }

  private func executeForEachRow(of claimed: Claimed, _ text: String) throws {
    let statement = try preparedStatement(text)
    for row in claimed.rows {
      sqlite3_bind_int64(statement, 1, row)
      sqlite3_bind_int64(statement, 2, claimed.token)
      try run(statement)
    }
  }

  private var failure: Failed { Failed(reason: String(cString: sqlite3_errmsg(database))) }

  /// Runs a transaction.
  ///
  /// Claims are not durable, just as in the store.
  private func transaction(isDurable: Bool = true, _ body: () throws -> Void) throws {
    if isDurable != self.isDurable {
      try execute("pragma synchronous = \(isDurable ? "full" : "normal")")
      self.isDurable = isDurable
    }
    try run(try preparedStatement("begin immediate"))
    try body()
    try run(try preparedStatement("commit"))
  }

  private func preparedStatement(_ text: String) throws -> OpaquePointer {
    if let statement = statements[text] { return statement }
    var statement: OpaquePointer?
    guard sqlite3_prepare_v2(database, text, -1, &statement, nil) == SQLITE_OK, let statement
    else { throw failure }
    statements[text] = statement
    return statement
  }

  private func run(_ statement: OpaquePointer) throws {
    let result = sqlite3_step(statement)
    sqlite3_reset(statement)
    guard result == SQLITE_DONE else { throw failure }
  }

  private func execute(_ text: String) throws {
    guard sqlite3_exec(database, text, nil, nil, nil) == SQLITE_OK else { throw failure }
  }
}

/// SQLITE_TRANSIENT: the bytes are copied.
private let transient = unsafeBitCast(-1, to: sqlite3_destructor_type.self)
#endif
