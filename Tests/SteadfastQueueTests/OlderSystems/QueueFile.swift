import Foundation
import SteadfastQueue
import TestSupport

/// A file that one queue after another opens, as successive processes do.
struct QueueFile: Sendable {
  let url: URL

  /// Opens the file for the body, and closes it afterwards, as a process does.
  func inNewProcess<Result>(
    _ body: (any Persistence) async throws -> Result
  ) async throws -> Result {
    let store = JSONFileStore(at: url)
    let result = try await body(store)
    try await store.close()
    return result
  }

  /// Copies the file in the state in which it would be if the process were killed now.
  func copyAsIfKilled() throws -> QueueFile {
    let copy = url.appendingPathExtension("after")
    try FileManager.default.copyItem(at: url, to: copy)
    return QueueFile(url: copy)
  }
}

/// Makes a file for queues, for as long as the body runs.
func withQueueFile<Result>(_ body: (QueueFile) async throws -> Result) async throws -> Result {
  try await withTemporaryFolder { folder in
    try await body(QueueFile(url: folder.appending(path: "queue.jsonl")))
  }
}
