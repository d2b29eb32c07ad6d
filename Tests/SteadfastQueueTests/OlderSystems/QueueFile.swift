import Foundation
import SteadfastQueue
import TestSupport

/// A file on which one queue after another is made, as by one process after another.
struct QueueFile: Sendable {
  let url: URL

  /// Hands the body a store that is to be there after a restart.
  func inNewProcess<Result>(
    _ body: (any Persistence) async throws -> Result
  ) async throws -> Result {
    let store = JSONFileStore(at: url)
    let result = try await body(store)
    try await store.close()
    return result
  }

  /// The file as it would be found if the process were killed now.
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
