//! YXQueue's jobs: five downloads at a time, what depends on them, and what observers see.

import Foundation
import SteadfastQueue

// snippet.job
struct Download: TaskPayload {
  var url: String
  var target: String
}
struct Unpack: TaskPayload { var target: String }
// snippet.end

let dispatcher = TaskQueue(configuration: TaskQueueConfiguration(maxConcurrentTasks: 8))

// snippet.operation
await dispatcher.register(
  Download.self,
  maxConcurrentTasks: 5
) { download, context in
  context.report(progress: 0.5)
  return "200 OK"
}
await dispatcher.register(Unpack.self) { job, _ in
  print("unpacked \(job.target)")
}
// snippet.end

// snippet.observe
let events = dispatcher.events
let observing = Task { @MainActor in
  for await event in events {
    switch event {
    case .started(let job): print("started", job.name)
    case .progressed(let job, let fraction): print(job.name, fraction)
    case .succeeded(let job, _): print("finished", job.name)
    case .failed(let job, let reason, _, _):
      print("failed", job.name, reason)
    case .cancelled(let id): print("cancelled", id)
    default: break
    }
  }
}
// snippet.end

// snippet.add
let job = try await dispatcher.enqueue(
  Download(url: "https://www.example.com/a.mp4", target: "a.mp4"),
  options: TaskOptions(priority: .low, tags: ["a.mp4"])
)
try await dispatcher.enqueue(
  Unpack(target: "a.mp4"),
  options: TaskOptions(dependencies: [job.id], tags: ["a.mp4"])
)
// snippet.end
while try await dispatcher.runAvailable() > 0 {}

// snippet.result
let response = try await job.value(as: String.self)
print(response)
// snippet.end

// snippet.control
let other = try await dispatcher.enqueue(
  Download(url: "b", target: "b.mp4")
)
try await dispatcher.pause(other.id)
try await dispatcher.resume(other.id)
try await dispatcher.retry(other.id)
try await other.cancel()
try await dispatcher.remove(other.id)
await dispatcher.pause()
await dispatcher.resume()
try await dispatcher.cancelAll()
try await dispatcher.cancel(matching: TaskFilter(tags: ["a.mp4"]))
// snippet.end
await dispatcher.shutDown()
_ = await observing.result
