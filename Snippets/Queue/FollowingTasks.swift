//! Runs a queue until it is idle, waits for outcomes and values, and follows events.

import SteadfastQueue

struct Thumbnail: TaskPayload { var photo: String }

struct Image: Sendable { var width: Int }

struct Report: TaskPayload { var month: Int }

// snippet.value
let queue = TaskQueue()
await queue.register(Thumbnail.self) { thumbnail, context in
  context.report(progress: 0.5)
  return Image(width: thumbnail.photo.count)
}

let task = try await queue.enqueue(Thumbnail(photo: "beach"))
async let running: Void = queue.run()

let image = try await task.value(as: Image.self)
print(image.width, try await task.outcome())  // 5 succeeded
// snippet.end

// snippet.later
/// Returns how a task ended, perhaps one of an earlier process.
func outcome(
  of id: TaskID,
  in queue: TaskQueue
) async throws -> TaskOutcome? {
  try await queue.task(id)?.outcome()
}
// snippet.end

// snippet.idle
try await queue.enqueue(contentsOf: ["a", "b"].map(Thumbnail.init))
try await queue.waitUntilIdle()
print(try await queue.count)  // 0

await queue.shutDown(within: .seconds(10))
try await running
// snippet.end

// snippet.events
/// Prints what happens until the queue is shut down.
func log(_ events: TaskEvents) async {
  for await event in events {
    switch event {
    case .succeeded(let task, let timing):
      print("\(task.name) took \(timing.ran)")
    case .failed(let task, let reason, let retryDate, _):
      print("\(task.name) failed: \(reason); again at \(retryDate)")
    case .abandoned(let task, let reason, _):
      print("\(task.name) was abandoned: \(reason)")
    default: break
    }
  }
}
// snippet.end

// snippet.pass
let reports = TaskQueue(name: "reports")
await reports.register(Report.self) { report, _ in
  guard report.month <= 12 else { throw TaskAbandoned("no such month") }
}
let events = reports.events  // What happens from here on.
async let logging: Void = log(events)

try await reports.enqueue(contentsOf: [
  Report(month: 1), Report(month: 13),
])
let attempts = try await reports.runAvailable()
print(attempts)  // 2
// snippet.end
await reports.shutDown()
await logging
