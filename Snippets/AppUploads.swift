//! What an app needs around a queue: an object that owns it, runs it, winds it up when the app goes
//! to the background, and shows what it does.

import Foundation
import SteadfastQueue

// snippet.payload
struct Upload: TaskPayload {
  var photo: String
  // A photo is uploaded once. The type must be `String?`.
  var uniqueKey: String? { photo }

  // A photo that was uploaded is not uploaded again.
  var options: TaskOptions {
    TaskOptions(uniqueFor: .seconds(3650 * 86_400))
  }
}
// snippet.end

// snippet.owner
/// Owns the queue for as long as the process lives.
@MainActor final class Uploads {
  let queue: TaskQueue
  private let upload: @Sendable (String) async throws -> Void
  private var running: Task<Void, Never>?
  /// Whether the queue is to run: the app may come back while it winds up.
  private var isWanted = false
  /// Why the queue does not run: its file can't be used, for example.
  private(set) var failure: (any Error)?

  init(
    store: some Persistence,
    clock: some WallClock = ContinuousClock(),
    upload: @escaping @Sendable (String) async throws -> Void
  ) {
    self.upload = upload
    queue = TaskQueue(
      name: "uploads",
      persistence: store,
      configuration: TaskQueueConfiguration(
        maxConcurrentTasks: 3,
        succeededRetention: .forever
      ),
      clock: clock
    )
  }

  /// Runs the queue, unless it runs already.
  ///
  /// Call it when the process starts, in the background too, and when the
  /// app comes to the foreground.
  func start() {
    isWanted = true
    guard running == nil else { return }
    failure = nil
    running = Task {
      await run()
      running = nil
    }
  }

  /// Whether a person has paused the uploads.
  var isPaused = false {
    didSet { Task { await applyPause() } }
  }

  private func applyPause() async {
    if isPaused { await queue.pause() } else { await queue.resume() }
  }

  private func run() async {
    await queue.register(Upload.self) { [upload] task, _ in
      try await upload(task.photo)
    }
    do {
      try await queue.run()
    } catch is CancellationError {
      // The app has gone to the background.
    } catch {
      failure = error
    }
  }

  /// Lets uploads that are under way go on for as long as the limit.
  ///
  /// The others are cut short, and lose no retry. Call it when the
  /// app goes to the background; afterwards nothing runs.
  func windUp(within limit: Duration) async {
    isWanted = false
    await queue.pause()
    try? await withTimeout(limit) { try await queue.waitUntilIdle() }
    if !isWanted {
      running?.cancel()
      await running?.value
      // The app may have come back in between.
      if isWanted { start() }
    }
    await applyPause()
  }
}
// snippet.end

// snippet.list
/// What a screen shows of the uploads.
@MainActor final class UploadList {
  private(set) var rows: [String: String] = [:]

  /// Follows the uploads until the queue is shut down.
  func follow(_ queue: TaskQueue) async throws {
    // Subscribe first, so that nothing is missed between the two.
    let events = queue.events
    try await load(queue)
    for await event in events {
      switch event {
      case .enqueued(let task): show(task, "waits")
      case .started(let task): show(task, "uploading")
      case .progressed(let task, let fraction):
        show(task, "\(Int(100 * fraction)) %")
      case .failed(let task, _, let date, _):
        show(task, "again at \(date)")
      case .succeeded(let task, _): show(task, "done")
      case .abandoned(let task, let reason, _):
        show(task, "failed: \(reason)")
      // These name the task by its ID, or many events were missed.
      default: try await load(queue)
      }
    }
  }

  private func load(_ queue: TaskQueue) async throws {
    rows = [:]
    for task in try await queue.tasks(matching: TaskFilter()) {
      show(task, "\(task.state)")
    }
  }

  private func show(_ task: TaskRecord, _ text: String) {
    rows[task.uniqueKey ?? "\(task.id)"] = text
  }
}
// snippet.end

let folder = FileManager.default.temporaryDirectory.appending(path: "AppUploads-\(UUID())")
try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
defer { try? FileManager.default.removeItem(at: folder) }

let (began, gate) = AsyncStream<Void>.makeStream()
let store = JSONFileStore(at: folder.appending(path: "uploads.jsonl"))
let uploads = Uploads(store: store) { photo in
  gate.yield()
  // The second photo takes longer than the app has in the background.
  if photo == "b.jpg" { try await Task.sleep(for: .seconds(3600)) }
}
uploads.start()
let first = try await uploads.queue.enqueue(Upload(photo: "a.jpg"))
print("a.jpg: \(try await first.outcome())")
let second = try await uploads.queue.enqueue(Upload(photo: "b.jpg"))
for await _ in began.prefix(2) {}
await uploads.windUp(within: .milliseconds(100))
let record = try await second.record()
print("b.jpg: \(record?.state.rawValue ?? ""), \(record?.retryCount ?? 0) retries")
print("again: \(try await uploads.queue.enqueue(Upload(photo: "a.jpg")).isNew)")

uploads.start()
let list = UploadList()
async let followed: Void = list.follow(uploads.queue)
for await _ in began.prefix(1) {}
try await second.cancel()
print("b.jpg: \(try await second.outcome())")
await uploads.queue.shutDown()
try await followed
print(list.rows)
try await store.close()
