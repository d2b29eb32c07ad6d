import Foundation
import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

/// Tests the descriptions of types, and the localized descriptions of errors.
@Suite struct DescriptionTests {
  private let clock = VirtualClock()

  @Test func `every error has a localized description`() async throws {
    let queue = TaskQueue(clock: clock)
    let error = await #expect(throws: TaskQueueError.self) {
      try await queue.enqueue(Note("a"), maxRetries: -1)
    }
    #expect(error?.localizedDescription.contains("maxRetries is -1") == true)
    let fileError = await #expect(throws: JSONFileError.self) {
      let store = JSONFileStore(
        at: URL(filePath: "/tmp/none"),
        options: JSONFileStore.Options(maxTaskSize: 0)
      )
      try await store.open()
    }
    #expect(fileError?.localizedDescription.contains("maxTaskSize of 0") == true)
    let abandoned: any Error = TaskAbandoned("no such post")
    #expect(abandoned.localizedDescription == "no such post")
    let snoozed: any Error = TaskSnoozed(for: .seconds(5))
    #expect(snoozed.localizedDescription == "snoozed for 5.0 seconds")
  }

  @Test func `descriptions name the task, but never its payload, keys, tags or metadata`()
    async throws
  {
    let queue = TaskQueue(name: "uploads", clock: clock)
    let events = queue.events
    let log = Log<String>()
    await queue.register(Note.self) { note, context in
      log.add("\(context)")
      if context.retryCount > 0 { throw TaskAbandoned("no such post") }
      throw Refusal()
    }
    let task = try await queue.enqueue(
      Note("secret"),
      uniqueKey: "secret key",
      options: TaskOptions(tags: ["secret tag"], metadata: ["secret key": "secret value"])
    )
    let again = try await queue.enqueue(Note("secret"), uniqueKey: "secret key")
    let waiting = try #require(try await queue.tasks().first)
    log.add("\(task)")
    log.add("\(again)")
    log.add("\(waiting)")
    log.add("\(waiting.payload)")
    try await queue.runAvailable()
    try await queue.performNow(task.id)
    try await queue.runAvailable()
    log.add("\(try await task.outcome())")
    log.add("\(try await queue.statistics)")
    for await event in events {
      log.add("\(event)")
      if case .abandoned = event { break }
    }
    let texts = log.entries
    #expect(!texts.contains { $0.contains("secret") })
    #expect(
      texts == [
        "task \(task.id) in the queue 'uploads'",
        "task \(task.id) in the queue 'uploads', which already existed",
        "Note \(task.id) (waiting)",
        "payload (json, version 1)",
        "attempt of Note \(task.id) (running)",
        "attempt of Note \(task.id) (running, retry 1)",
        "abandoned: no such post",
      ] + texts.dropFirst(7)
    )
    #expect(texts[7].hasPrefix("1 abandoned; 2 attempts: 0 succeeded, 1 failed, 1 abandoned"))
    #expect(
      texts.dropFirst(8).map { $0.prefix { !": ,".contains($0) } } == [
        "enqueued", "started", "failed", "rescheduled", "started", "abandoned",
      ]
    )
    #expect(texts.last?.hasSuffix("(running, retry 1): no such post") == true)
  }
}
