#if SQLite
import SteadfastDatabases
import SteadfastQueue
import SystemSQLite
import SystemFoundation

/// A connection to the database; one thread uses it.
@safe final class Connection {
  enum Access {
    /// Creates the database if it does not exist.
    case making
    case writing
    case reading
  }

  /// How long a statement waits for other connections, in milliseconds.
  static let busyTimeout = 5_000

  private let handle: OpaquePointer
  /// The prefix that replaces `steadfast` at the start of the names of the tables.
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
    guard code == SQLITE_OK else { throw failure(withCode: code) }
    unsafe sqlite3_extended_result_codes(opened, 1)
    unsafe sqlite3_busy_timeout(opened, Int32(Self.busyTimeout))
  }

  deinit {
    statements = [:]
    // The connection closes when its last statement is finalized.
    unsafe sqlite3_close_v2(handle)
  }

  private func failure(withCode code: Int32) -> SQLiteFailure {
    SQLiteFailure(
      code: unsafe max(code, sqlite3_extended_errcode(handle)),
      text: unsafe String(cString: sqlite3_errmsg(handle))
    )
  }

  /// Whether no transaction is in progress.
  var isIdle: Bool { unsafe sqlite3_get_autocommit(handle) != 0 }

  /// How many rows the connection has changed since it was opened.
  var changeCount: Int { Int(unsafe sqlite3_total_changes(handle)) }

  /// Whether the connection can't write.
  var isReadOnly: Bool { unsafe sqlite3_db_readonly(handle, "main") == 1 }

  /// The real path of the file.
  var path: String { unsafe String(cString: sqlite3_db_filename(handle, "main")) }

  /// Whether the file was renamed or deleted since it was opened.
  var hasMoved: Bool {
    var moved: Int32 = 0
    let code = unsafe sqlite3_file_control(handle, "main", SQLITE_FCNTL_HAS_MOVED, &moved)
    return code == SQLITE_OK && moved != 0
  }

  /// Returns the first bytes of the file, padded with zeros; `nil` if the file can't be read.
  ///
  /// This reads through SQLite's open file. If the process opened the file a second time and closed
  /// that descriptor, the system would release all locks that SQLite has on the file in this
  /// process.
  func firstBytes(_ count: Int) -> [UInt8]? {
    var file: UnsafeMutablePointer<sqlite3_file>?
    let code = unsafe sqlite3_file_control(handle, "main", SQLITE_FCNTL_FILE_POINTER, &file)
    guard code == SQLITE_OK, let file = unsafe file, let methods = unsafe file.pointee.pMethods,
      let read = unsafe methods.pointee.xRead
    else { return nil }
    var bytes = [UInt8](repeating: 0, count: count)
    let result = unsafe read(file, &bytes, Int32(count), 0)
    // This is SQLITE_IOERR_SHORT_READ, a macro that Swift does not import. After such a read, the
    // rest of the bytes are zeros.
    let isShort = result == SQLITE_IOERR | 2 << 8
    return result == SQLITE_OK || isShort ? bytes : nil
  }

  /// Returns SQL with the store's prefix in the names of the tables.
  private func sqlWithPrefix(_ sql: String) -> String {
    prefix == "steadfast" ? sql : sql.replacing("steadfast_", with: prefix + "_")
  }

  /// Runs statements that have no parameters.
  func execute(_ sql: String) throws(SQLiteFailure) {
    let code = unsafe sqlite3_exec(handle, sqlWithPrefix(sql), nil, nil, nil)
    guard code == SQLITE_OK else { throw failure(withCode: code) }
  }

  private func preparedStatement(
    _ sql: String,
    isCached: Bool
  ) throws(SQLiteFailure) -> Statement {
    if let statement = statements[sql] { return statement }
    var statement: OpaquePointer?
    let flags = isCached ? UInt32(SQLITE_PREPARE_PERSISTENT) : 0
    let code = unsafe sqlite3_prepare_v3(handle, sqlWithPrefix(sql), -1, flags, &statement, nil)
    guard code == SQLITE_OK, let handle = unsafe statement else { throw failure(withCode: code) }
    let prepared = unsafe Statement(handle)
    if isCached { statements[sql] = prepared }
    return prepared
  }

  /// Runs a statement, and calls `body` with each row until `body` returns `false`.
  ///
  /// `body` must not run a statement with the same SQL.
  private func forEachRow(
    of sql: String,
    _ values: [SQLValue],
    isCached: Bool = true,
    _ body: (Statement) throws -> Bool
  ) throws {
    let statement = try preparedStatement(sql, isCached: isCached)
    defer { statement.reset() }
    let code = statement.bind(values)
    guard code == SQLITE_OK else { throw failure(withCode: code) }
    while true {
      switch statement.step() {
      case SQLITE_ROW: guard try body(statement) else { return }
      case SQLITE_DONE: return
      case let code: throw failure(withCode: code)
      }
    }
  }

  /// Runs a statement, and returns the number of rows that it changed.
  @discardableResult
  func run(_ sql: String, _ values: SQLValue...) throws -> Int { try run(sql, values) }

  @discardableResult
  func run(_ sql: String, _ values: [SQLValue]) throws -> Int {
    try forEachRow(of: sql, values) { _ in true }
    return Int(unsafe sqlite3_changes(handle))
  }

  /// Reads the first row of a statement with `read`; returns `nil` if there is no row.
  ///
  /// A statement with changes must return at most one row.
  func first<Value>(
    _ sql: String,
    _ values: SQLValue...,
    read: (Statement) throws -> Value
  ) throws -> Value? {
    var found: Value?
    try forEachRow(of: sql, values) { row in
      found = try read(row)
      // A statement with changes must run to its end.
      return !row.isReadOnly
    }
    return found
  }

  /// Returns whether a statement has a row.
  func hasRow(_ sql: String, _ values: SQLValue...) throws -> Bool {
    var found = false
    try forEachRow(of: sql, values) { _ in
      found = true
      return false
    }
    return found
  }

  /// Reads each row of a statement with `read`.
  func allRows<Value>(
    _ sql: String,
    _ values: SQLValue...,
    read: (Statement) throws -> Value
  ) throws -> [Value] {
    try rows(of: sql, values, isCached: true, read: read)
  }

  /// Reads each row of a statement with `read`, without caching the statement.
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
    try forEachRow(of: sql, values, isCached: isCached) { row in
      found.append(try read(row))
      return true
    }
    return found
  }

  /// Returns the IDs in the first column of a statement's rows.
  func ids(_ sql: String, _ values: SQLValue...) throws -> [TaskID] {
    try rows(of: sql, values, isCached: true) { $0.id(0) }.compactMap(\.self)
  }
}

/// A prepared statement, and its current row.
@safe final class Statement: TaskRow {
  private let handle: OpaquePointer

  init(_ handle: OpaquePointer) { unsafe self.handle = handle }

  deinit { unsafe sqlite3_finalize(handle) }

  var isReadOnly: Bool { unsafe sqlite3_stmt_readonly(handle) != 0 }

  /// Sets the parameters, starting with the first one.
  ///
  /// - Returns: The result code.
  func bind(_ values: [SQLValue]) -> Int32 {
    var code = SQLITE_OK
    for (offset, value) in values.enumerated() where code == SQLITE_OK {
      code = bind(value, Int32(offset + 1))
    }
    return code
  }

  private func bind(_ value: SQLValue, _ index: Int32) -> Int32 {
    switch value {
    case .null: return unsafe sqlite3_bind_null(handle, index)
    case .integer(let value): return unsafe sqlite3_bind_int64(handle, index, value)
    case .real(let value): return unsafe sqlite3_bind_double(handle, index, value)
    case .text(var text):
      return text.withUTF8 { bytes in
        guard let count = Int32(exactly: bytes.count) else { return SQLITE_TOOBIG }
        return unsafe bytes.withMemoryRebound(to: CChar.self) { characters in
          // An empty string may have no address, but must not be stored as null.
          guard let base = characters.baseAddress else {
            return unsafe steadfast_bind_text(handle, index, "", 0)
          }
          return unsafe steadfast_bind_text(handle, index, base, count)
        }
      }
    case .blob(let bytes):
      guard let count = Int32(exactly: bytes.count) else { return SQLITE_TOOBIG }
      guard count > 0 else { return unsafe sqlite3_bind_zeroblob(handle, index, 0) }
      return unsafe bytes.withUnsafeBytes { bytes in
        unsafe steadfast_bind_blob(handle, index, bytes.baseAddress, count)
      }
    case .id(let id):
      return unsafe withUnsafeBytes(of: (id.high.bigEndian, id.low.bigEndian)) { bytes in
        unsafe steadfast_bind_blob(handle, index, bytes.baseAddress, 16)
      }
    }
  }

  /// Advances to the next row.
  ///
  /// - Returns: The result code.
  func step() -> Int32 { unsafe sqlite3_step(handle) }

  /// Resets the statement, and clears its parameters.
  func reset() {
    unsafe sqlite3_reset(handle)
    unsafe sqlite3_clear_bindings(handle)
  }

  // MARK: The row

  func isNull(_ column: Int32) -> Bool {
    unsafe sqlite3_column_type(handle, column) == SQLITE_NULL
  }

  func int64(_ column: Int32) -> Int64 { unsafe sqlite3_column_int64(handle, column) }

  func integer(_ column: Int32) -> Int { Int(clamping: int64(column)) }

  func flag(_ column: Int32) -> Bool { integer(column) != 0 }

  func text(_ column: Int32) -> String {
    guard let base = unsafe sqlite3_column_text(handle, column) else { return "" }
    let count = Int(unsafe sqlite3_column_bytes(handle, column))
    let bytes = unsafe UnsafeBufferPointer(start: base, count: count)
    return unsafe String(decoding: bytes, as: UTF8.self)
  }

  func bytes(_ column: Int32) -> [UInt8] {
    guard let base = unsafe sqlite3_column_blob(handle, column) else { return [] }
    let count = Int(unsafe sqlite3_column_bytes(handle, column))
    return unsafe Array(UnsafeRawBufferPointer(start: base, count: count))
  }

  /// The ID in a column; `nil` if the column is null.
  func id(_ column: Int32) -> TaskID? {
    guard let base = unsafe sqlite3_column_blob(handle, column),
      unsafe sqlite3_column_bytes(handle, column) == 16
    else { return nil }
    return unsafe TaskID(
      high: UInt64(bigEndian: base.loadUnaligned(as: UInt64.self)),
      low: UInt64(bigEndian: base.loadUnaligned(fromByteOffset: 8, as: UInt64.self))
    )
  }

  func date(_ column: Int32) -> Date {
    Date(timeIntervalSince1970: unsafe sqlite3_column_double(handle, column))
  }

  func real(_ column: Int32) -> Double { unsafe sqlite3_column_double(handle, column) }
}

/// A parameter of a statement.
enum SQLValue {
  case null
  case integer(Int64)
  case real(Double)
  case text(String)
  case blob([UInt8])
  case id(TaskID)
}

extension SQLValue {
  static func integer(_ value: Int?) -> SQLValue { value.map { .integer(Int64($0)) } ?? .null }
  static func text(_ value: String?) -> SQLValue { value.map { .text($0) } ?? .null }
  static func id(_ value: TaskID?) -> SQLValue { value.map { .id($0) } ?? .null }
  static func flag(_ value: Bool) -> SQLValue { .integer(value ? Int64(1) : 0) }

  /// The seconds since 1970.
  ///
  /// A date that is not a number comes before all others, as in Swift's ranges. Without that,
  /// SQLite would store such a date as null.
  static func date(_ value: Date?) -> SQLValue {
    guard let seconds = value?.timeIntervalSince1970 else { return .null }
    return .real(seconds.isNaN ? -.infinity : seconds)
  }

  /// The microseconds; at least one for a positive duration.
  static func duration(_ value: Duration?) -> SQLValue {
    value.map { .integer($0.microseconds) } ?? .null
  }

  /// The number of retries; null if there is no limit.
  static func limit(_ limit: RetryLimit?) -> SQLValue {
    if case .atMost(let count) = limit { .integer(Int64(count)) } else { .null }
  }

  static func token(_ value: UInt64) -> SQLValue { .integer(Int64(bitPattern: value)) }
}

/// SQLite's error for a failed call.
struct SQLiteFailure: Error, Equatable {
  /// The extended result code.
  let code: Int32
  let text: String

  var primaryCode: Int32 { code & 0xFF }

  /// Whether a statement names a table or a column that does not exist.
  var isMissingTableOrColumn: Bool {
    primaryCode == SQLITE_ERROR
      && (text.hasPrefix("no such table") || text.hasPrefix("no such column"))
  }
}
#endif
