//! Keeps a queue in a SQLite database; build it with `--traits SQLite`.

#if SQLite
import Foundation
import SteadfastQueue
import SteadfastSQLite

struct SendInvoice: TaskPayload { var number: Int }

let folder = FileManager.default.temporaryDirectory.appending(path: "SQLiteQueue-\(UUID())")
try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
defer { try? FileManager.default.removeItem(at: folder) }

// snippet.open
let store = SQLiteStore(at: folder.appending(path: "app.sqlite"))
try await store.open()  // Throws now, and not at the first `enqueue`.
let queue = TaskQueue(name: "invoices", persistence: store)
await queue.register(SendInvoice.self) { invoice, _ in
  print("invoice \(invoice.number)")
}
try await queue.enqueue(SendInvoice(number: 1))
try await queue.runAvailable()
// snippet.end
try await store.close()

// snippet.shared
/// The same line in each process of the machine.
let shared = TaskQueue(
  name: "invoices",
  persistence: .sqlite(
    at: folder.appending(path: "app.sqlite"),
    sharing: StoreSharing(leaseDuration: .seconds(60))
  )
)
// snippet.end
try await shared.enqueue(SendInvoice(number: 2))

// snippet.errors
do {
  try await SQLiteStore(at: folder, prefix: "invoices").open()
} catch let error as SQLiteError where error.code == .cannotOpen {
  print(error.message)
}
// snippet.end
#else
print("build it with --traits SQLite")
#endif
