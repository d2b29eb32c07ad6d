//! Retries a call, and keeps a task in a file until it is done.

import Foundation
import SteadfastQueue

// snippet.hide
struct Offline: Error {}

/// A service that can be reached every third time.
actor Service {
  private var calls = 0

  func fetch() throws -> String {
    calls += 1
    guard calls.isMultiple(of: 3) else { throw Offline() }
    return "hello after \(calls) calls"
  }

  func post(_ text: String) throws { _ = try fetch() }
}

let api = Service()
let folder = FileManager.default.temporaryDirectory.appending(path: "FirstSteps-\(UUID())")
try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
defer { try? FileManager.default.removeItem(at: folder) }
let file = folder.appending(path: "comments.jsonl")
// snippet.show
// snippet.retry
let greeting = try await withRetry(.attempts(5)) { try await api.fetch() }
// snippet.end
print(greeting)

// snippet.queue
struct PostComment: TaskPayload { var text: String }

let queue = TaskQueue(
  persistence: .jsonFile(at: file),
  configuration: TaskQueueConfiguration(backoff: .exponential(from: .seconds(0.1), multiplier: 2))
)
await queue.register(PostComment.self) { comment, _ in try await api.post(comment.text) }
let task = try await queue.enqueue(PostComment(text: "so important"))

async let running: Void = queue.run()  // performs tasks until the queue is shut down
print(try await task.outcome())  // succeeded, after two retries
await queue.shutDown()
try await running
// snippet.end
