//! Keeps a queue in a PostgreSQL database; build it with `--traits PostgreSQL`.
//!
//! `STEADFAST_POSTGRESQL` is the connection string, such as `host=localhost dbname=app`.

#if PostgreSQL
import Foundation
import SteadfastPostgreSQL
import SteadfastQueue

struct SendInvoice: TaskPayload { var number: Int }

guard let connection = ProcessInfo.processInfo.environment["STEADFAST_POSTGRESQL"] else {
  print("set STEADFAST_POSTGRESQL to the connection string of a database")
  exit(0)
}

// snippet.open
/// The same lines on each machine.
let store = PostgreSQLStore(connection, prefix: "invoices")
try await store.open()  // Throws now, and not at the first `enqueue`.
let queue = TaskQueue(name: "invoices", persistence: store)
await queue.register(SendInvoice.self) { invoice, _ in
  print("invoice \(invoice.number)")
}
try await queue.enqueue(SendInvoice(number: 1))
try await queue.runAvailable()
// snippet.end
try await store.close()

// snippet.errors
do {
  try await PostgreSQLStore("\(connection) dbname=nowhere").open()
} catch let error as PostgreSQLError where error.code == .noDatabase {
  print(error.message)
}
// snippet.end

// snippet.tables
/// For the role that owns the database, as a step of a deployment.
print(try PostgreSQLStore.tables(schema: "app", prefix: "invoices"))
/// For the role of the program, which makes no tables.
let careful = PostgreSQLStore(
  connection,
  schema: "app",
  prefix: "invoices",
  migrates: false
)
// snippet.end
try await store.destroy()
#else
print("build it with --traits PostgreSQL")
#endif
