//! A handler with hooks: it chooses the dates of retries, retries a task, and cleans up. And a
//! function that puts code around every handler.

import Foundation
import SteadfastTesting

struct Unauthorized: Error {}
struct Busy: Error {}

/// A server that is busy for a while, and asks for a new token once.
actor Server {
  private var calls = 0

  func receive(_ photo: String) throws {
    calls += 1
    if calls <= 4 { throw Busy() }
    if calls == 5 { throw Unauthorized() }
  }
}

// snippet.handler
struct Upload: TaskPayload { var photo: String }

struct Uploader: TaskHandler {
  let server: Server
  let clock: any WallClock

  func perform(_ upload: Upload, in context: TaskContext) async throws {
    print("\(clock.date): attempt \(context.retryCount + 1)")
    try await server.receive(upload.photo)
  }

  /// Postpones a retry to midnight, when the server has time.
  ///
  /// The queue proposes an earlier date.
  func retryDate(
    of upload: Upload,
    after error: any Error,
    proposed date: Date,
    in context: TaskContext
  ) async -> Date {
    guard error is Busy, context.retryCount > 0 else { return date }
    let midnight =
      (date.timeIntervalSince1970 / 86_400).rounded(.up) * 86_400
    return Date(timeIntervalSince1970: midnight)
  }

  /// Restarts the task if the server is only busy.
  func shouldRestart(
    _ upload: Upload,
    after error: any Error,
    in context: TaskContext
  ) async
    -> Bool
  {
    error is Busy
  }

  /// Removes the upload's copy after a success.
  ///
  /// An abandoned upload keeps its copy, because it may be retried.
  func willEnd(
    _ upload: Upload,
    outcome: TaskOutcome,
    in context: TaskContext
  ) async {
    guard outcome == .succeeded else { return }
    print("\(upload.photo) \(outcome), its copy is removed")
  }
}
// snippet.end

struct Thumbnail: TaskPayload { var photo: String }

// snippet.around
extension TaskQueue {
  /// Registers a closure, with a line at the beginning and at the end of
  /// each attempt.
  func registerTraced<Work: TaskPayload, Output: Sendable>(
    _ type: Work.Type,
    maxConcurrentTasks limit: Int? = nil,
    perform: @escaping @Sendable (Work, TaskContext) async throws -> Output
  ) async {
    await register(type, maxConcurrentTasks: limit) { work, context in
      print("\(context.name) \(context.id) begins")
      defer { print("\(context.name) \(context.id) ends") }
      return try await perform(work, context)
    }
  }
}
// snippet.end

try await withVirtualTime { time in
  // snippet.use
  let queue = TaskQueue(clock: time.clock)
  await queue.register(
    handler: Uploader(server: Server(), clock: time.clock)
  )
  try await queue.enqueue(Upload(photo: "beach"), maxRetries: 2)
  // snippet.end
  // snippet.traced
  await queue.registerTraced(Thumbnail.self) { thumbnail, _ in
    print("a small picture of the \(thumbnail.photo)")
  }
  // snippet.end
  try await queue.enqueue(Thumbnail(photo: "beach"))
  let attempts = try await time.drain(queue)
  print("\(attempts) attempts")
}
