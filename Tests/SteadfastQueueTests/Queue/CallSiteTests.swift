import Foundation
import SteadfastQueue
import SteadfastTesting
import TestSupport
import Testing

/// Makes the calls that the documentation shows, without access to internal declarations.
@Suite struct CallSiteTests {
  struct PostComment: TaskPayload { var text: String }

  struct Sync: PerformableTask {
    func perform(in context: TaskContext) async throws {}
  }

  @Test func `a queue is named default unless it has another name`() {
    #expect(TaskQueue().name == "default")
    #expect(TaskQueue(name: "uploads").name == "uploads")
  }

  @Test func `the documentation's example of a queue in a file works`() async throws {
    try await withTemporaryFolder { folder in
      let url = folder.appending(path: "uploads")
      let clock = VirtualClock()
      let queue = TaskQueue(
        name: "uploads",
        persistence: .jsonFile(at: url),
        configuration: TaskQueueConfiguration(maxConcurrentTasks: 4),
        clock: clock
      )
      await queue.register(PostComment.self) { comment, context in
        if comment.text == "impossible" { throw TaskAbandoned("no such post") }
      }
      await queue.register(Sync.self)

      let task = try await queue.enqueue(PostComment(text: "so important"))
      try await queue.enqueue(
        PostComment(text: "later"),
        availableDate: clock.date + 60,
        maxRetries: 3,
        usesBackoff: false
      )
      try await queue.enqueue(
        Sync(),
        maxRetries: .alwaysRetry,
        priority: .high,
        uniqueKey: "sync"
      )
      try await queue.enqueue(contentsOf: ["a", "b"].map(PostComment.init))
      let impossible = try await queue.enqueue(PostComment(text: "impossible"))
      #expect(try await queue.count == 6)
      #expect(try await queue.contains(task.id))
      #expect(try await queue.contains(name: PostComment.taskName))
      #expect(try await queue.tasks().count == 6)

      let outcomes = try await withThrowingTaskGroup { group in
        group.addTask { try await queue.run() }
        defer { group.cancelAll() }
        return [try await task.outcome(), try await impossible.outcome()]
      }
      switch (outcomes[0], outcomes[1]) {
      case (.succeeded, .abandoned(let reason)): #expect(reason == "no such post")
      default: Issue.record("\(outcomes)")
      }
      #expect(try await queue.tasks(matching: .deadLetters).map(\.id) == [impossible.id])
    }
  }

  @Test func `the documentation's example of a task's options works`() async throws {
    let queue = TaskQueue()
    let photos = ["a", "b"].map(PostComment.init)
    try await queue.enqueue(PostComment(text: "t"), usesBackoff: false)
    try await queue.enqueue(PostComment(text: "later"), availableDate: .now + 60)
    try await queue.enqueue(PostComment(text: "in a minute"), delay: .seconds(60))
    try await queue.enqueue(contentsOf: photos, options: TaskOptions(priority: .high))
    try await queue.enqueue(PostComment(text: "1"), uniqueKey: "draft 7")
    try await queue.enqueue(PostComment(text: "2"), uniqueKey: "draft 7", onDuplicate: .replace)
    #expect(try await queue.count == 6)
  }

  @Test func `a queue in memory needs no arguments`() async throws {
    let queue = TaskQueue()
    await queue.register(Sync.self)
    try await queue.enqueue(Sync())
    #expect(try await queue.runAvailable() == 1)
    await queue.pause()
    await queue.resume()
    queue.beginShutDown()
    await queue.shutDown()
  }
}
