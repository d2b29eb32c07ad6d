//! Runs a queue in a server: it retries what is worth it, ends within a grace period after SIGTERM,
//! logs what happens, and counts it.

import Foundation
import SteadfastQueue

// snippet.payload
/// A webhook that is to be delivered.
struct Webhook: TaskPayload {
  var order: Int

  // If a client asks twice, it gets one delivery. Its type is `String?`.
  var uniqueKey: String? { "order \(order)" }

  var options: TaskOptions {
    TaskOptions(maxRetries: 20, timeLimit: .seconds(30))
  }
}
// snippet.end

// snippet.error
/// An answer that is no success, and decides whether a retry can help.
struct HTTPError: RetryAwareError, CustomStringConvertible {
  let status: Int
  let retryDecision: RetryDecision

  init(status: Int, retryAfter: String?) {
    self.status = status
    // A receiver knows a delivery by its ID, so it may be repeated.
    retryDecision = .http(
      status: status,
      method: "POST",
      isIdempotent: true,
      retryAfter: retryAfter
    )
  }

  /// The text that is stored with the task, and shown in the log.
  var description: String { "the receiver answered \(status)" }
}
// snippet.end

/// Stands for a request: the first attempt is asked to come back at once, order 8 is refused.
func post(_ order: Int, attempt: Int) -> (status: Int, retryAfter: String?) {
  if order == 8 { return (400, nil) }
  return attempt == 0 ? (503, "0") : (200, nil)
}

// snippet.service
/// Takes requests and performs tasks, until the process is asked to end.
struct WebhookServer: Sendable {
  let queue: TaskQueue
  let gracePeriod: Duration
  /// Takes requests until it is cancelled.
  let takeRequests: @Sendable () async throws -> Void

  func run() async throws {
    let requests = Task {
      // A server that takes no requests has no more to do.
      defer { queue.beginShutDown(within: gracePeriod) }
      try await takeRequests()
    }
    // A server that took requests without a run would promise what is never
    // done.
    defer { requests.cancel() }

    // The events end when the queue has shut down.
    let events = queue.events
    async let logged: Void = log(events)
    // It ends after a signal, or throws when its disk fails.
    try await queue.run(
      stoppingOn: .sigterm,
      .sigint,
      within: gracePeriod
    ) {
      // No further request is taken, and no further attempt begins.
      requests.cancel()
    }
    await logged
    do { try await requests.value } catch is CancellationError {}
  }
}
// snippet.end

// snippet.log
func log(_ events: TaskEvents) async {
  for await event in events {
    switch event {
    case .succeeded(let task, let timing):
      write("\(task.name) succeeded, \(timing)")
    case .failed(let task, let reason, let retryDate, _):
      write("\(task.name) failed: \(reason); next attempt at \(retryDate)")
    case .abandoned(let task, let reason, _):
      write("\(task.name) was abandoned: \(reason)")
    case .unhandled(_, let reason): write("warning: \(reason)")
    default: break
    }
  }
}

/// Writes a line at once.
///
/// When a process is killed, lines that `print` has collected may be lost.
func write(_ line: String) {
  FileHandle.standardOutput.write(Data("\(line)\n".utf8))
}
// snippet.end

let folder = FileManager.default.temporaryDirectory.appending(path: "ServerQueue-\(UUID())")
try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
defer { try? FileManager.default.removeItem(at: folder) }

// snippet.main
// The folder must exist.
let store = JSONFileStore(at: folder.appending(path: "queue.jsonl"))
let queue = TaskQueue(
  persistence: store,
  configuration: TaskQueueConfiguration(maxConcurrentTasks: 8)
)
// Of the eight, at most four are webhooks: others are performed, too.
await queue.register(Webhook.self, maxConcurrentTasks: 4) {
  webhook,
  context in
  let (status, retryAfter) = post(
    webhook.order,
    attempt: context.retryCount
  )
  guard status == 200 else {
    throw HTTPError(status: status, retryAfter: retryAfter)
  }
}
// snippet.end

let service = WebhookServer(queue: queue, gracePeriod: .seconds(20)) {
  // snippet.request
  // In the handlers of requests:
  let task = try await queue.enqueue(Webhook(order: 7))
  let again = try await queue.enqueue(Webhook(order: 7))
  write("the second request added a task: \(again.isNew)")
  // snippet.end
  write("outcome: \(try await task.outcome())")
  let refused = try await queue.enqueue(Webhook(order: 8))
  write("outcome: \(try await refused.outcome())")
  try await report()
  kill(getpid(), SIGTERM)
  try await Task.sleep(for: .seconds(60))
}

// snippet.metrics
/// Writes the figures that a dashboard shows.
@Sendable func report() async throws {
  let statistics = try await queue.statistics
  let due = TaskFilter(
    states: [.waiting],
    availableDates: .distantPast..<Date.now
  )
  write(
    """
    \(try await queue.count(matching: due)) due, \
    \(statistics.counts[.running] ?? 0) running, \
    \(statistics.counts[.abandoned] ?? 0) dead letters; \
    \(statistics.succeeded) succeeded, \
    \(statistics.failed) failed and retried, \
    \(statistics.abandoned) abandoned
    """
  )
  for letter in try await queue.tasks(matching: .deadLetters) {
    write("abandoned: \(letter.id), \(letter.lastError ?? "")")
  }
}
// snippet.end

// snippet.end-of-main
do {
  try await service.run()
  try await store.close()
} catch {
  write("the service has failed: \(error)")
  exit(1)
}
// snippet.end
write("shut down")
