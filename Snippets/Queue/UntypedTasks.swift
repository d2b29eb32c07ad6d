//! Tasks with a name and any JSON, and one closure for all of them: a counterpart for each call of
//! KTBTaskQueue.

import Foundation
import SteadfastQueue

let folder = FileManager.default.temporaryDirectory.appending(path: "UntypedTasks-\(UUID())")
try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
defer { try? FileManager.default.removeItem(at: folder) }
let file = folder.appending(path: "queue.db")

struct Response: Sendable { var status = 200 }
struct ServerError: Error {}

/// Stands for a server.
func post(_ path: String, _ parameters: JSONValue) async throws -> Response {
  if path == "albums" { return Response(status: 404) }
  guard parameters["wow"] != nil else { throw ServerError() }
  return Response()
}

// snippet.queue
let queue = TaskQueue(persistence: .jsonFile(at: file))
await queue.registerFallback { userInfo, context in
  // The task's userInfo is this request's parameters.
  let response = try await post("resources", userInfo)
  print("\(context.name): \(response.status)")
}
try await queue.enqueue(
  name: "PostThisVitalThing",
  ["wow": "so important"]
)
// snippet.end

// snippet.future
try await queue.enqueue(
  name: "FutureTask",
  options: TaskOptions(
    availableDate: .now + 60,
    maxRetries: 3,
    usesBackoff: false
  )
)
try await queue.enqueue(
  name: "IReallyWantThisDone",
  options: TaskOptions(maxRetries: .alwaysRetry, usesBackoff: true)
)
// snippet.end

// snippet.abandon
await queue.register(name: "PostAlbum") { userInfo, _ in
  let response = try await post("albums", userInfo)
  if response.status == 404 { throw TaskAbandoned("no such album") }
}
// snippet.end
let album = try await queue.enqueue(name: "PostAlbum", ["title": "Summer"])

// snippet.run
let processing = Task { try await queue.run() }
// snippet.end
print(try await album.outcome())

// snippet.control
await queue.pause()
print(queue.isPaused, queue.isProcessing)
await queue.resume()

print(try await queue.count)
print(try await queue.contains(name: "FutureTask"))
print(try await queue.contains(album.id))
for task in try await queue.tasks() {
  print(task.name, task.retryCount, task.lastError ?? "")
}
// snippet.end

// snippet.configuration
let impatient = TaskQueue(
  configuration: TaskQueueConfiguration(
    backoff: .exponential(from: .seconds(30), multiplier: 2).capped(
      at: .seconds(3600)
    ),
    prohibitsBackoff: true,
    taskDefaults: TaskOptions(usesBackoff: false)
  )
)
// snippet.end

// snippet.reading
await impatient.register(name: "Introspection") { userInfo, context in
  print(context.id, context.name, userInfo)
  print(context.createdDate, context.availableDate)
  print(
    context.retryCount,
    context.maxRetries,
    context.usesBackoff,
    !context.isLastAttempt
  )
}
// snippet.end
try await impatient.enqueue(name: "Introspection")
try await impatient.runAvailable()

let inMemory = TaskQueue()
print(inMemory.isPaused)

// snippet.second-less
let exactly = Backoff.custom { retry in
  .seconds(10) * (1 << min(retry.number - 1, 30)) - .seconds(1)
}
// snippet.end
_ = exactly

// snippet.delegate
struct PostResource: TaskPayload { var wow: String }

struct Delegate: TaskHandler {
  // taskQueue:executeTask:completion:
  func perform(
    _ task: PostResource,
    in context: TaskContext
  ) async throws {
    _ = try await post("resources", ["wow": .string(task.wow)])
  }

  // taskQueue:willDelayRetryOfTask:untilDate:
  func retryDate(
    of task: PostResource,
    after error: any Error,
    proposed date: Date,
    in context: TaskContext
  ) async -> Date {
    min(date, .now + 3600)
  }

  // taskQueue:willAbandonTask:
  func willEnd(
    _ task: PostResource,
    outcome: TaskOutcome,
    in context: TaskContext
  ) async {
    if case .abandoned(let reason) = outcome {
      print("will abandon \(task.wow): \(reason)")
    }
  }
}

await queue.register(handler: Delegate())
// snippet.end
let resource = try await queue.enqueue(PostResource(wow: "typed"))
print(try await resource.outcome())

// snippet.delete
try await queue.destroy()
// snippet.end
print("the file is there: \(FileManager.default.fileExists(atPath: file.path))")
_ = await processing.result
