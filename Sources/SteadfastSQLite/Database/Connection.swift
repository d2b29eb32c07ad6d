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
  private var statements: [StatementText: Statement] = [:]

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

  /// Runs statements that have no parameters, and are written in SQLite's SQL.
  func execute(_ sql: String) throws(SQLiteFailure) {
    let code = unsafe sqlite3_exec(handle, sqlWithPrefix(sql), nil, nil, nil)
    guard code == SQLITE_OK else { throw failure(withCode: code) }
  }

  private func preparedStatement(_ sql: String) throws(SQLiteFailure) -> Statement {
    let key = StatementText(sql)
    if let statement = statements[key] { return statement }
    let text = sqlWithPrefix(Dialect.adapt(sql))
    var statement: OpaquePointer?
    let flags = UInt32(SQLITE_PREPARE_PERSISTENT)
    let code = unsafe sqlite3_prepare_v3(handle, text, -1, flags, &statement, nil)
    guard code == SQLITE_OK, let handle = unsafe statement else { throw failure(withCode: code) }
    let prepared = unsafe Statement(handle)
    statements[key] = prepared
    return prepared
  }
}

extension Connection: TaskDatabase {
  static let columns = TaskColumns.names.map { name in
    // A long payload has a separate row.
    name == "payload"
      ? "coalesce(payload, (select bytes from steadfast_payload where task_id = id))" : name
  }.joined(separator: ", ")

  static func lists(of ids: [TaskID]) -> [SQLValue] { ids.map { .id($0) } }

  func forEachRow(
    of sql: String,
    _ values: [SQLValue],
    _ body: (Statement) throws -> Bool
  ) throws {
    let statement = try preparedStatement(sql)
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

  func send(_ sql: String, _ values: [SQLValue]) throws { try run(sql, values) }

  @discardableResult
  func run(_ sql: String, _ values: [SQLValue]) throws -> Int {
    try forEachRow(of: sql, values) { _ in true }
    return Int(unsafe sqlite3_changes(handle))
  }
}

/// A prepared statement, and its current row.
@safe final class Statement: TaskRow {
  private let handle: OpaquePointer

  init(_ handle: OpaquePointer) { unsafe self.handle = handle }

  deinit { unsafe sqlite3_finalize(handle) }

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
    case .bytes(let bytes):
      guard let count = Int32(exactly: bytes.count) else { return SQLITE_TOOBIG }
      guard count > 0 else { return unsafe sqlite3_bind_zeroblob(handle, index, 0) }
      return unsafe bytes.withUnsafeBytes { bytes in
        unsafe steadfast_bind_blob(handle, index, bytes.baseAddress, count)
      }
    case .id(let id):
      return unsafe withUnsafeBytes(of: (id.high.bigEndian, id.low.bigEndian)) { bytes in
        unsafe steadfast_bind_blob(handle, index, bytes.baseAddress, 16)
      }
    case .flag, .date, .array: return bind(value.stored, index)
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

  func strings(_ column: Int32) throws -> [String] {
    try StoredStrings.read(unlessNull(column, text))
  }
}

extension SQLValue {
  /// The value in one of the forms that SQLite stores: null, a number, a text, or bytes.
  ///
  /// A date becomes the seconds since 1970. A date that is not a number comes before all others, as
  /// in Swift's ranges. Without that, SQLite would store such a date as null.
  var stored: SQLValue {
    switch self {
    case .null, .integer, .real, .text, .bytes: return self
    case .flag(let value): return .integer(value ? 1 : 0)
    case .id(let id): return .bytes(id.bytes)
    case .date(let date):
      let seconds = date.timeIntervalSince1970
      return .real(seconds.isNaN ? -.infinity : seconds)
    case .array(let elements, let type):
      if type == .id { return .bytes(elements.flatMap(\.bytesOfID)) }
      precondition(type == .text, "SQLite gets only lists of IDs and of strings")
      return elements.isEmpty ? .null : .text(StoredStrings.json(of: elements.compactMap(\.string)))
    }
  }

  private var bytesOfID: [UInt8] { if case .id(let id) = self { id.bytes } else { [] } }

  private var string: String? { if case .text(let text) = self { text } else { nil } }
}

extension TaskID {
  /// The 16 bytes of the ID, as they are stored.
  var bytes: [UInt8] {
    [high, low].flatMap { half in (0..<8).map { UInt8(truncatingIfNeeded: half >> (56 - 8 * $0)) } }
  }
}

/// Strings as a JSON array that statements can search.
enum StoredStrings {
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
