//! Keeps a queue in a file: its limits, what it holds, and how it is checked.

import Foundation
import SteadfastQueue

struct SendInvoice: TaskPayload { var number: Int }

let folder = FileManager.default.temporaryDirectory.appending(path: "FileStores-\(UUID())")
try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
defer { try? FileManager.default.removeItem(at: folder) }

// snippet.open
let store = JSONFileStore(
  at: folder.appending(path: "invoices.jsonl"),
  flushing: .eachBatch,
  options: JSONFileStore.Options(
    maxTaskSize: 64 << 10,  // 64 KiB
    maxFileSize: 100 << 20  // 100 MiB
  )
)
try await store.open()  // Throws now, and not at the first `enqueue`.
let queue = TaskQueue(name: "invoices", persistence: store)
// snippet.end

// snippet.full
/// Adds an invoice, or says that there is no room for it.
func add(_ invoice: SendInvoice) async throws -> Bool {
  do {
    try await queue.enqueue(invoice)
    return true
  } catch let error as JSONFileError where error.code == .fileFull {
    return false
  }
}
// snippet.end
print("added: \(try await add(SendInvoice(number: 1)))")

// snippet.statistics
let statistics = try await store.statistics()
print("\(statistics.taskCount) tasks, \(statistics.byteCount) bytes")
if let failure = statistics.failedCompaction {
  print("not compacted since \(failure.date): \(failure.reason)")
}
let report = try await store.verify()
print(report.isSound)
// snippet.end

// snippet.close
try await store.close()
let closed = try await JSONFileStore.verify(at: store.url)
print(closed.wasClosed, closed.tornByteCount)  // true 0
// snippet.end
