//! Verifies a damaged file, saves what can be read, and goes on.

import Foundation
import SteadfastQueue

struct SendInvoice: TaskPayload { var number: Int }

let folder = FileManager.default.temporaryDirectory.appending(path: "RepairFile-\(UUID())")
try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
defer { try? FileManager.default.removeItem(at: folder) }
let file = folder.appending(path: "queue.jsonl")

let store = JSONFileStore(at: file)
try await TaskQueue(persistence: store)
  .enqueue(contentsOf: (1...5).map(SendInvoice.init))
try await store.close()

// The disk loses a bit.
let handle = try FileHandle(forUpdating: file)
let middle = try handle.seekToEnd() / 2
try handle.seek(toOffset: middle)
let byte = try handle.read(upToCount: 1)?.first ?? 0
try handle.seek(toOffset: middle)
try handle.write(contentsOf: Data([byte ^ 1]))
try handle.close()

// snippet.verify
let report = try await JSONFileStore.verify(at: file)
print(report)
// snippet.end

// snippet.open
/// Opens a store, after a repair if its file is damaged.
func openStore(at file: URL) async throws -> JSONFileStore {
  let store = JSONFileStore(at: file)
  do {
    try await store.open()
  } catch let error as JSONFileError where error.code == .damaged {
    try await repair(file)
    try await store.open()
  }
  return store
}
// snippet.end

// snippet.repair
func repair(_ file: URL) async throws {
  let repair = try await JSONFileStore.repair(at: file)
  if let copy = repair.copy {
    let saved = repair.report.counts.values.reduce(0, +)
    print(
      "saved \(saved) tasks; the damaged file is \(copy.lastPathComponent)"
    )
  }
  for line in repair.skippedLines { print("passed over: \(line)") }
}
// snippet.end

let queue = TaskQueue(persistence: try await openStore(at: file))
await queue.register(SendInvoice.self) { invoice, _ in print("invoice \(invoice.number)") }
print("\(try await queue.runAvailable()) attempts")
