//! Adds tasks within transactions of libpq; build it with `--traits PostgreSQL`.
//!
//! `STEADFAST_POSTGRESQL` is the connection string, such as `host=localhost dbname=app`.

#if PostgreSQL
import Foundation
import SteadfastPostgreSQL
import SteadfastQueue
import SystemPostgreSQL

struct SendReceipt: TaskPayload {
  var order: Int64
  var uniqueKey: String? { "\(order)" }
}

struct DatabaseError: Error { var text: String }

// snippet.connection
/// A connection of your own to the database of the queue.
final class Database {
  private let handle: OpaquePointer?

  init(_ connection: String) throws {
    handle = PQconnectdb(connection)
    guard PQstatus(handle) == CONNECTION_OK else { throw failure }
  }

  deinit { PQfinish(handle) }

  /// Runs a statement, and returns the first value of its first row.
  @discardableResult
  func execute(
    _ sql: String,
    _ parameters: [SQLParameter] = []
  ) throws -> String? {
    // As texts: the statement names the type of each.
    let texts = parameters.map { $0.text.flatMap { strdup($0) } }
    defer { texts.forEach { free($0) } }
    let values = texts.map { UnsafePointer($0) }
    let count = Int32(values.count)
    let result = PQexecParams(handle, sql, count, nil, values, nil, nil, 0)
    defer { PQclear(result) }
    switch PQresultStatus(result) {
    case PGRES_COMMAND_OK, PGRES_TUPLES_OK: break
    default: throw failure
    }
    guard PQntuples(result) > 0 else { return nil }
    return String(cString: PQgetvalue(result, 0, 0))
  }

  /// Adds a task, which no queue sees before the commit.
  ///
  /// - Returns: Whether it was added, or another one stands for it.
  func execute(_ insertion: InsertStatement) throws -> Bool {
    try execute(insertion.text, insertion.parameters) == "t"
  }

  private var failure: DatabaseError {
    DatabaseError(text: String(cString: PQerrorMessage(handle)))
  }
}

extension SQLParameter {
  /// The value as PostgreSQL reads it; `nil` for null.
  fileprivate var text: String? {
    switch self {
    case .null: nil
    case .integer(let value): "\(value)"
    case .real(let value): "\(value)"
    case .text(let text): text
    case .bytes(let bytes):
      "\\x" + bytes.map { String(format: "%02x", $0) }.joined()
    }
  }
}
// snippet.end

guard let connection = ProcessInfo.processInfo.environment["STEADFAST_POSTGRESQL"] else {
  print("set STEADFAST_POSTGRESQL to the connection string of a database")
  exit(0)
}

let (receipts, send) = AsyncStream<Int64>.makeStream()
let store = PostgreSQLStore(connection, prefix: "receipts")
let queue = TaskQueue(name: "receipts", persistence: store)
await queue.register(SendReceipt.self) { receipt, _ in
  send.yield(receipt.order)
}
try await queue.open()  // Makes what the statements need.

let database = try Database(connection)
try database.execute("create temporary table orders (number bigserial, total bigint)")
let running = Task { try await queue.run() }

// snippet.transaction
/// Adds an order and the task that follows from it: both, or none.
func addOrder(total: Int64, to database: Database) throws {
  try database.execute("begin")
  do {
    let text = try database.execute(
      "insert into orders (total) values ($1::bigint) returning number",
      [.integer(total)]
    )
    let receipt = SendReceipt(order: text.flatMap { Int64($0) } ?? 0)
    let insertion = try queue.insertStatement(for: receipt)
    let isAdded = try database.execute(insertion)
    print(isAdded ? "to be sent" : "another task sends the receipt")
    try database.execute("commit")
  } catch {
    _ = try? database.execute("rollback")
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
try await PostgreSQLStore(connection, prefix: "receipts").destroy()
#else
print("build it with --traits PostgreSQL")
#endif
