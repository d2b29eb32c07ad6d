//! Keeps a task in a file until it is done, and retries a call.

// snippet.queue
import Foundation
import SteadfastQueue

struct PostComment: TaskPayload { var text: String }
struct Offline: Error {}

let file = URL.temporaryDirectory.appending(path: "comments.jsonl")
let queue = TaskQueue(
  persistence: .jsonFile(at: file),
  configuration: TaskQueueConfiguration(backoff: .exponential(from: .seconds(0.5), multiplier: 2))
)
await queue.register(PostComment.self) { comment, context in
  // What throws is tried again, later and later. Here, the third attempt succeeds.
  if context.retryCount < 2 { throw Offline() }
  print("posted:", comment.text)
}
// When this returns, the task is on the disk.
let comment = try await queue.enqueue(PostComment(text: "so important"))

async let running: Void = queue.run()
print(try await comment.outcome())
await queue.shutDown()
try await running
// snippet.end

/// A service that can be reached every third time.
actor Service {
  private var calls = 0

  func user() throws -> String {
    calls += 1
    guard calls.isMultiple(of: 3) else { throw Offline() }
    return "ada, after \(calls) calls"
  }
}

let api = Service()
// snippet.retry
let user = try await withRetry(.attempts(5)) { try await api.user() }
// snippet.end
print(user)
