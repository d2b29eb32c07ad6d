//! Adds tasks within transactions of SQLite's C interface; build it with `--traits SQLite`.

#if SQLite
import Foundation
import SteadfastQueue
import SteadfastSQLite
import SystemSQLite

struct SendReceipt: TaskPayload {
  var order: Int64
  var uniqueKey: String? { "\(order)" }
}

struct DatabaseError: Error { var text: String }

// snippet.connection
/// A connection of your own to the database of the queue.
final class Database {
  private var handle: OpaquePointer?

  init(at url: URL) throws {
    try check(sqlite3_open(url.path, &handle))
    // The queue writes, too: wait for it, and do not fail.
    try check(sqlite3_busy_timeout(handle, 5_000))
  }

  deinit { sqlite3_close_v2(handle) }

  func execute(_ sql: String) throws {
    try check(sqlite3_exec(handle, sql, nil, nil, nil))
  }

  var lastRow: Int64 { sqlite3_last_insert_rowid(handle) }

  /// Adds a task, which no queue sees before the commit.
  func execute(_ insertion: InsertStatement) throws {
    var statement: OpaquePointer?
    let text = insertion.text
    try check(sqlite3_prepare_v2(handle, text, -1, &statement, nil))
    defer { sqlite3_finalize(statement) }
    for (parameter, index) in zip(insertion.parameters, Int32(1)...) {
      try check(bind(parameter, to: statement, index))
    }
    let code = sqlite3_step(statement)
    if code != SQLITE_DONE { try check(code) }
  }

  private func bind(
    _ parameter: SQLParameter,
    to statement: OpaquePointer?,
    _ index: Int32
  ) -> Int32 {
    // SQLite copies the bytes before the call returns.
    let copy = unsafeBitCast(-1, to: sqlite3_destructor_type.self)
    func count(_ bytes: some Collection) -> Int32 { Int32(bytes.count) }
    return switch parameter {
    case .null: sqlite3_bind_null(statement, index)
    case .integer(let value): sqlite3_bind_int64(statement, index, value)
    case .real(let value): sqlite3_bind_double(statement, index, value)
    case .text(let text):
      sqlite3_bind_text(statement, index, text, count(text.utf8), copy)
    case .bytes(let bytes) where bytes.isEmpty:
      sqlite3_bind_zeroblob(statement, index, 0)
    case .bytes(let bytes):
      sqlite3_bind_blob(statement, index, bytes, count(bytes), copy)
    }
  }

  private func check(_ code: Int32) throws {
    guard code != SQLITE_OK else { return }
    throw DatabaseError(text: String(cString: sqlite3_errmsg(handle)))
  }
}
// snippet.end

let folder = FileManager.default.temporaryDirectory.appending(path: "OwnTransaction-\(UUID())")
try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
defer { try? FileManager.default.removeItem(at: folder) }

let url = folder.appending(path: "shop.sqlite")
let (receipts, send) = AsyncStream<Int64>.makeStream()
// snippet.queue
let queue = TaskQueue(name: "receipts", persistence: .sqlite(at: url))
await queue.register(SendReceipt.self) { receipt, _ in
  send.yield(receipt.order)
}
try await queue.open()  // Makes what the statements need.
// snippet.end

let database = try Database(at: url)
try database.execute("create table orders (number integer primary key, total integer)")
let running = Task { try await queue.run() }

// snippet.transaction
/// Adds an order and the task that follows from it: both, or none.
func addOrder(total: Int, to database: Database) throws {
  try database.execute("begin immediate")
  do {
    try database.execute("insert into orders (total) values (\(total))")
    let receipt = SendReceipt(order: database.lastRow)
    try database.execute(queue.insertStatement(for: receipt))
    try database.execute("commit")
  } catch {
    try? database.execute("rollback")
    throw error
  }
}
// snippet.end

try addOrder(total: 20, to: database)
for await number in receipts {
  print("the receipt of the order \(number)")
  break
}
running.cancel()
_ = await running.result
#else
print("build it with --traits SQLite")
#endif
