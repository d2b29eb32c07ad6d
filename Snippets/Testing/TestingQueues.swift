//! Tests a task queue in virtual time: enqueued tasks, single attempts, days of retries, a restart,
//! and a system clock that jumps.

import Foundation
import SteadfastTesting
import Testing

struct Offline: Error, CustomStringConvertible {
  let description = "offline"
}

// snippet.app
struct PostComment: TaskPayload, Equatable { var text: String }

/// The part of an app that posts comments, now or when there is a network.
struct Comments: Sendable {
  let queue: TaskQueue
  let send: @Sendable (String) async throws -> Void

  init(
    _ store: some Persistence,
    _ clock: some WallClock,
    send: @escaping @Sendable (String) async throws -> Void
  ) async {
    let configuration = TaskQueueConfiguration(
      backoff: .constant(.seconds(3600))
    )
    queue = TaskQueue(
      persistence: store,
      configuration: configuration,
      clock: clock
    )
    self.send = send
    await queue.register(PostComment.self) { comment, _ in
      try await send(comment.text)
    }
  }

  func post(_ text: String, at date: Date? = nil) async throws {
    try await queue.enqueue(PostComment(text: text), availableDate: date)
  }
}
// snippet.end

/// A server that can be up or down.
actor Server {
  private var isUp: Bool
  private(set) var comments: [String] = []

  init(isUp: Bool = true) { self.isUp = isUp }

  func setUp(_ isUp: Bool) { self.isUp = isUp }

  func receive(_ comment: String) throws {
    guard isUp else { throw Offline() }
    comments.append(comment)
  }
}

// snippet.short
try await withVirtualTime { time in
  let queue = TaskQueue(clock: time.clock)
  await queue.register(PostComment.self) { _, _ in throw Offline() }
  let task = try await queue.enqueue(PostComment(text: "never arrives"))
  let attempts = try await time.drain(queue)
  print(attempts, try await task.outcome())  // 11, abandoned in 2 h 50 min
}
// snippet.end

// snippet.enqueued
try await withVirtualTime { time in
  let app = await Comments(InMemoryStore(), time.clock) { _ in }
  try await app.post("tomorrow", at: time.clock.date + 86_400)
  for task in try await app.queue.pendingTasks(of: PostComment.self) {
    print(
      "'\(task.payload.text)' is available at \(task.record.availableDate)"
    )
  }
}
// snippet.end

// In a test, these say the same.
try await withVirtualTime { time in
  let clock = time.clock
  let app = await Comments(InMemoryStore(), clock) { _ in }
  let queue = app.queue
  try await app.post("tomorrow", at: clock.date + 86_400)
  // snippet.expected
  try await queue.expectEnqueued(PostComment(text: "tomorrow"))
  // snippet.end
  try await app.post("later", at: clock.date + 60)
  // snippet.expected-date
  let later = PostComment(text: "later")
  try await queue.expectEnqueued(later, availableDate: clock.date + 60)
  // snippet.end
}

// snippet.test
@Test(.virtualTime)
func `a comment is posted when the network is back`() async throws {
  let time = try VirtualTime.required
  let clock = time.clock
  let server = Server(isUp: false)
  let app = await Comments(InMemoryStore(), clock) { text in
    if clock.now.offset >= .seconds(7200) { await server.setUp(true) }
    try await server.receive(text)
  }
  try await app.post("at last")
  let attempts = try await time.drain(app.queue)
  #expect(attempts == 3)
  #expect(await server.comments == ["at last"])
}
// snippet.end

try await withVirtualTime { time in
  // snippet.step-back
  time.clock.setDate(time.clock.date.addingTimeInterval(-3600))
  // snippet.end
}

// snippet.attempt
try await withVirtualTime { time in
  for retryCount in [0, 10] {
    let attempt = try await performAttempt(
      PostComment(text: "hi"),
      retryCount: retryCount
    ) {
      _,
      _ in
      throw Offline()
    }
    print("after \(retryCount) retries: \(attempt.ending)")
  }
}
// snippet.end

// snippet.remembering
try await withVirtualTime { time in
  // An earlier attempt has uploaded the photo, and then failed.
  let memory = try TaskMemory(steps: ["upload": "photo-7"])
  let attempt = try await performAttempt(
    PostComment(text: "hi"),
    remembering: memory
  ) { comment, context in
    let photo = try await context.step("upload") { _ in "photo-8" }
    try await context.step("post") { _ in
      print("post '\(comment.text)' with \(photo)")
    }
    try await context.sleep("before the reminder", for: .seconds(86_400))
  }
  print(attempt.ending, attempt.memory.steps)
}
// snippet.end

// snippet.drain
try await withVirtualTime { time in
  let server = Server(isUp: false)
  let clock = time.clock
  let app = await Comments(InMemoryStore(), clock) { text in
    if clock.now.offset >= .seconds(7200) { await server.setUp(true) }
    try await server.receive(text)
  }
  try await app.post("at last")
  let attempts = try await time.drain(app.queue)
  let posted = await server.comments
  print("\(posted) posted after \(attempts) attempts, \(clock.now)")
}
// snippet.end

// snippet.restart
let folder = FileManager.default.temporaryDirectory
  .appending(path: "testing-queues-\(UUID().uuidString)")
try FileManager.default.createDirectory(
  at: folder,
  withIntermediateDirectories: true
)
defer { try? FileManager.default.removeItem(at: folder) }

try await withVirtualTime { time in
  let file = folder.appending(path: "comments")
  let server = Server()

  // The first day: a comment is scheduled, and the process ends.
  let first = JSONFileStore(at: file)
  let monday = await Comments(first, time.clock) {
    try await server.receive($0)
  }
  try await monday.post("tomorrow", at: time.clock.date + 86_400)
  try await monday.queue.runAvailable()
  try await first.close()

  // The second day: another process opens the file.
  await time.advance(by: .seconds(86_400))
  let second = JSONFileStore(at: file)
  let tuesday = await Comments(second, time.clock) {
    try await server.receive($0)
  }
  try await tuesday.queue.runAvailable()
  try await second.close()
  print("posted after the restart: \(await server.comments)")
}
// snippet.end

// snippet.jump
try await withVirtualTime(.manual) { time in
  let server = Server(isUp: false)
  let app = await Comments(InMemoryStore(), time.clock) {
    try await server.receive($0)
  }
  try await app.post("in an hour")
  try await withThrowingTaskGroup { group in
    group.addTask { try await app.queue.run() }
    // The first attempt fails. Then a user sets the clock back by a year.
    await time.advance(by: .seconds(60))
    await server.setUp(true)
    time.clock.setDate(time.clock.date - 365 * 86_400)
    // The queue notices within a minute, and waits for an hour as before.
    await time.advance(by: .seconds(3660))
    print("\(time.clock.now): \(await server.comments)")
    group.cancelAll()
    do { try await group.waitForAll() } catch is CancellationError {}
  }
}
// snippet.end
