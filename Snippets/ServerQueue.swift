//! Runs a queue in a server: it ends within a grace period after SIGTERM, logs what happens, and
//! counts it.

import Foundation
import SteadfastQueue

struct SendReceipt: TaskPayload {
  var order: Int
  /// A client that asks twice gets one receipt.
  var uniqueKey: String? { "receipt \(order)" }
  static var options: TaskOptions { TaskOptions(maxRetries: 20, timeLimit: .seconds(30)) }
}

// snippet.service
/// A queue that performs tasks until the process is told to end.
struct QueueService: Sendable {
  let queue: TaskQueue
  let gracePeriod: Duration

  func run() async throws {
    let events = queue.events
    let signals = [SIGINT, SIGTERM].map { number in
      signal(number, SIG_IGN)
      let source = DispatchSource.makeSignalSource(
        signal: number,
        queue: .global()
      )
      // Attempts that go on when the grace period is over are cut short, and
      // performed again later.
      source.setEventHandler { @Sendable in
        queue.beginShutDown(within: gracePeriod)
      }
      source.activate()
      return source
    }
    defer { for source in signals { source.cancel() } }
    try await withThrowingDiscardingTaskGroup { group in
      // The events end when the queue has shut down.
      group.addTask { for await event in events { log(event) } }
      do {
        try await queue.run()
      } catch let error as TaskQueueError where error.code == .shutDown {
        // The signal came first.
      }
    }
  }
}
// snippet.end

// snippet.log
func log(_ event: TaskEvent) {
  switch event {
  case .succeeded(let task, let timing):
    print("\(task.name) succeeded, waited \(timing.waited), ran \(timing.ran)")
  case .failed(let task, let reason, let retryDate, _):
    print("\(task.name) failed: \(reason); next attempt at \(retryDate)")
  case .abandoned(let task, let reason, _):
    print("\(task.name) was given up: \(reason)")
  case .unhandled(_, let reason): print("warning: \(reason)")
  default: break
  }
}
// snippet.end

let folder = FileManager.default.temporaryDirectory.appending(path: "ServerQueue-\(UUID())")
try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
defer { try? FileManager.default.removeItem(at: folder) }

// snippet.main
let store = JSONFileStore(at: folder.appending(path: "queue.jsonl"))
let queue = TaskQueue(persistence: store)
await queue.register(SendReceipt.self, maxConcurrentTasks: 4) {
  receipt,
  context in
  print("sending receipt \(receipt.order), attempt \(context.retryCount + 1)")
}
let service = QueueService(queue: queue, gracePeriod: .seconds(20))
async let running: Void = service.run()

// In the handlers of requests:
let task = try await queue.enqueue(SendReceipt(order: 7))
let again = try await queue.enqueue(SendReceipt(order: 7))
print("the second request added a task: \(again.isNew)")
// snippet.end
print("outcome: \(try await task.outcome())")

kill(getpid(), SIGTERM)
// snippet.end-of-main
try await running
try await store.close()
// snippet.end
print("shut down")
