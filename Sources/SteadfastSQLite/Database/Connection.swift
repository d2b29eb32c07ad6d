#if SQLite
import SystemSQLite
import SteadfastQueue

/// A connection to the database; one thread uses it.
@safe final class Connection {
  enum Access {
    /// The database is made if it is not there.
    case making
    case writing
    case reading
  }

  /// How long a statement waits for other connections, in milliseconds.
  static let busyTimeout = 5_000

  private let handle: OpaquePointer
  /// The word with which the names of the tables begin, in place of `steadfast`.
  private let prefix: String
  private var statements: [String: Statement] = [:]

  init(_ path: String, _ access: Access, prefix: String) throws(SQLiteFailure) {
    let flags =
      switch access {
      case .making: SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE
      case .writing: SQLITE_OPEN_READWRITE
      case .reading: SQLITE_OPEN_READONLY
      }
    var handle: OpaquePointer?
    let code = unsafe sqlite3_open_v2(path, &handle, flags | SQLITE_OPEN_NOMUTEX, nil)
    guard let opened = unsafe handle else {
      throw SQLiteFailure(code: SQLITE_NOMEM, text: "out of memory")
    }
    unsafe self.handle = opened
    self.prefix = prefix
    guard code == SQLITE_OK else { throw failure(code) }
    unsafe sqlite3_extended_result_codes(opened, 1)
    unsafe sqlite3_busy_timeout(opened, Int32(Self.busyTimeout))
  }

  deinit {
    statements = [:]
    // It ends when its last statement is gone.
    unsafe sqlite3_close_v2(handle)
  }

  private func failure(_ code: Int32) -> SQLiteFailure {
    SQLiteFailure(
      code: unsafe max(code, sqlite3_extended_errcode(handle)),
      text: unsafe String(cString: sqlite3_errmsg(handle))
    )
  }

  /// Whether no transaction is under way.
  var isIdle: Bool { unsafe sqlite3_get_autocommit(handle) != 0 }

  /// How many rows the connection has changed since it was opened.
  var changeCount: Int { Int(unsafe sqlite3_total_changes(handle)) }

  /// Whether the connection can't write.
  var isReadOnly: Bool { unsafe sqlite3_db_readonly(handle, "main") == 1 }

  /// The real path of the file.
  var path: String { unsafe String(cString: sqlite3_db_filename(handle, "main")) }

  /// Whether the file has another name, or none, since it was opened.
  var hasMoved: Bool {
    var moved: Int32 = 0
    let code = unsafe sqlite3_file_control(handle, "main", SQLITE_FCNTL_HAS_MOVED, &moved)
    return code == SQLITE_OK && moved != 0
  }

  /// The first bytes of the file, and zeros for those that it does not have; `nil` if it can't be
  /// read.
  ///
  /// They are read through the file that SQLite has open. If a process opens the file a second time
  /// and closes it, the system drops all locks that SQLite has on it in this process.
  func firstBytes(_ count: Int) -> [UInt8]? {
    var file: UnsafeMutablePointer<sqlite3_file>?
    let code = unsafe sqlite3_file_control(handle, "main", SQLITE_FCNTL_FILE_POINTER, &file)
    guard code == SQLITE_OK, let file = unsafe file, let methods = unsafe file.pointee.pMethods,
      let read = unsafe methods.pointee.xRead
    else { return nil }
    var bytes = [UInt8](repeating: 0, count: count)
    let result = unsafe read(file, &bytes, Int32(count), 0)
    // SQLITE_IOERR_SHORT_READ, a macro that is not imported: the rest is zeros.
    let isShort = result == SQLITE_IOERR | 2 << 8
    return result == SQLITE_OK || isShort ? bytes : nil
  }

  private func named(_ sql: String) -> String {
    prefix == "steadfast" ? sql : sql.replacing("steadfast_", with: prefix + "_")
  }

  /// Runs statements that have no parameters.
  func execute(_ sql: String) throws(SQLiteFailure) {
    let code = unsafe sqlite3_exec(handle, named(sql), nil, nil, nil)
    guard code == SQLITE_OK else { throw failure(code) }
  }

  private func prepared(_ sql: String, isCached: Bool) throws(SQLiteFailure) -> Statement {
    if let statement = statements[sql] { return statement }
    var statement: OpaquePointer?
    let flags = isCached ? UInt32(SQLITE_PREPARE_PERSISTENT) : 0
    let code = unsafe sqlite3_prepare_v3(handle, named(sql), -1, flags, &statement, nil)
    guard code == SQLITE_OK, let handle = unsafe statement else { throw failure(code) }
    let prepared = unsafe Statement(handle)
    if isCached { statements[sql] = prepared }
    return prepared
  }

  /// Runs a statement, and calls `body` with each row until it returns `false`.
  ///
  /// `body` must run no statement with the same text.
  private func forEach(
    _ sql: String,
    _ values: [SQLValue],
    isCached: Bool = true,
    _ body: (Statement) throws -> Bool
  ) throws {
    let statement = try prepared(sql, isCached: isCached)
    defer { statement.reset() }
    let code = statement.bind(values)
    guard code == SQLITE_OK else { throw failure(code) }
    while true {
      switch statement.step() {
      case SQLITE_ROW: guard try body(statement) else { return }
      case SQLITE_DONE: return
      case let code: throw failure(code)
      }
    }
  }

  /// Runs a statement, and returns how many rows it has changed.
  @discardableResult
  func run(_ sql: String, _ values: SQLValue...) throws -> Int { try run(sql, values) }

  @discardableResult
  func run(_ sql: String, _ values: [SQLValue]) throws -> Int {
    try forEach(sql, values) { _ in true }
    return Int(unsafe sqlite3_changes(handle))
  }

  /// Returns what `read` makes of the first row; `nil` if there is none.
  ///
  /// A statement that changes something changes one row.
  func first<Value>(
    _ sql: String,
    _ values: SQLValue...,
    read: (Statement) throws -> Value
  ) throws -> Value? {
    var found: Value?
    try forEach(sql, values) { row in
      found = try read(row)
      // What a changing statement does is done when it has run to its end.
      return !row.isReadOnly
    }
    return found
  }

  /// Returns whether there is a row.
  func has(_ sql: String, _ values: SQLValue...) throws -> Bool {
    var found = false
    try forEach(sql, values) { _ in
      found = true
      return false
    }
    return found
  }

  func all<Value>(
    _ sql: String,
    _ values: SQLValue...,
    read: (Statement) throws -> Value
  ) throws -> [Value] {
    try rows(of: sql, values, isCached: true, read: read)
  }

  /// Returns what `read` makes of each row of a statement that is run once.
  func rows<Value>(
    ofOnce sql: String,
    _ values: [SQLValue],
    read: (Statement) throws -> Value
  ) throws -> [Value] {
    try rows(of: sql, values, isCached: false, read: read)
  }

  private func rows<Value>(
    of sql: String,
    _ values: [SQLValue],
    isCached: Bool,
    read: (Statement) throws -> Value
  ) throws -> [Value] {
    var found: [Value] = []
    try forEach(sql, values, isCached: isCached) { row in
      found.append(try read(row))
      return true
    }
    return found
  }

  /// Returns the IDs in the first column.
  func ids(_ sql: String, _ values: SQLValue...) throws -> [TaskID] {
    try rows(of: sql, values, isCached: true) { $0.id(0) }.compactMap(\.self)
  }
}
#endif
