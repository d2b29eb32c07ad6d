//! A background pass: of several recurring tasks, the most important that fit into the time.

import SteadfastQueue

struct Inbox { func fetch() async throws -> Int { 2 } }
struct Offline: Error {}
let inbox = Inbox()

// snippet.register
let scheduler = BackgroundScheduler(
  persistence: InMemoryStore(),
  minimumInterval: .seconds(5 * 60)
)
await scheduler.register(
  "inbox",
  priority: .veryHigh,
  expectedDuration: .seconds(5)
) {
  try await inbox.fetch() > 0 ? .newData : .noData
}
await scheduler.register(
  "thumbnails",
  priority: .low,
  expectedDuration: .seconds(15)
) {
  .noData
}
await scheduler.register(
  "search index",
  priority: .veryLow,
  expectedDuration: .seconds(20)
) {
  throw Offline()
}
// snippet.end

// snippet.run
let result = try await scheduler.run(within: .seconds(25))
print("the pass has brought \(result)")
// snippet.end

// snippet.status
for task in try await scheduler.status {
  let date = task.lastRunDate.map { "last run \($0)" } ?? "never run"
  print("\(task.name): \(date), \(task.lastError ?? "no error")")
}
// snippet.end

// snippet.now
let index = try await scheduler.run("search index", within: .seconds(25))
print("the index: \(index)")
// snippet.end

// snippet.queue
struct Upload: TaskPayload { var photo: String }

let uploads = TaskQueue()
await uploads.register(Upload.self) { upload, _ in
  print("uploaded \(upload.photo)")
}
try await uploads.enqueue(Upload(photo: "a.jpg"))
let attempts = try await uploads.run(within: .seconds(25))
print("\(attempts) attempt")
// snippet.end

// snippet.together
await scheduler.register("uploads", expectedDuration: .seconds(10)) {
  try await uploads.run(within: .seconds(10)) > 0 ? .newData : .noData
}
// snippet.end
