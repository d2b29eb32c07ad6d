import Foundation
import SteadfastTesting
import TestSupport
import Testing

@Suite struct PendingTasksTests {
  private let clock = VirtualClock()

  @Test func `pending tasks are in the order of enqueueing, with payloads and dates`() async throws
  {
    let queue = TaskQueue(clock: clock)
    try await queue.enqueue(Letter("later"), availableDate: clock.date + 60)
    try await queue.enqueue(Forgetful())
    try await queue.enqueue(Letter("now"), maxRetries: 3, priority: .high)
    let letters = try await queue.pendingTasks(of: Letter.self)
    #expect(letters.map(\.payload) == [Letter("later"), Letter("now")])
    #expect(letters.map(\.record.availableDate) == [clock.date + 60, clock.date])
    #expect(letters.last?.record.maxRetries == 3)
  }

  @Test func `pending tasks include tasks under a former name of their type`() async throws {
    struct Note: TaskPayload {
      static let taskName = "Note"
      var text: String
    }
    let queue = TaskQueue(clock: clock)
    try await queue.enqueue(Note(text: "old"))
    #expect(try await queue.pendingTasks(of: Letter.self).map(\.payload) == [Letter("old")])
  }

  @Test func `pending tasks do not include tasks that have ended`() async throws {
    let queue = TaskQueue(
      configuration: TaskQueueConfiguration(succeededRetention: .forever),
      clock: clock
    )
    await queue.register(Letter.self) { letter, _ in
      if letter.text == "bad" { throw TaskAbandoned("bad") }
    }
    try await queue.enqueue(contentsOf: [Letter("good"), Letter("bad")])
    try await queue.runAvailable()
    #expect(try await queue.pendingTasks(of: Letter.self).isEmpty)
  }

  @Test func `pending tasks include the tasks of all pages`() async throws {
    let queue = TaskQueue(clock: clock)
    try await queue.enqueue(contentsOf: (0..<2000).map { Letter("\($0)") })
    let texts = try await queue.pendingTasks(of: Letter.self).map(\.payload.text)
    #expect(texts == (0..<2000).map(String.init))
  }

  @Test func `pending tasks are complete even if the store returns shorter pages than requested`()
    async throws
  {
    let queue = TaskQueue(persistence: ThriftyStore(base: InMemoryStore()), clock: clock)
    try await queue.enqueue(contentsOf: (0..<20).map { Letter("\($0)") })
    let texts = try await queue.pendingTasks(of: Letter.self).map(\.payload.text)
    #expect(texts == (0..<20).map(String.init))
  }

  @Test func `the payload of a pending task lacks the properties that a restart would lose`()
    async throws
  {
    let queue = TaskQueue(clock: clock)
    try await queue.enqueue(Forgetful(kept: 2, lost: 3))
    let payloads = try await queue.pendingTasks(of: Forgetful.self).map(\.payload)
    #expect(payloads == [Forgetful(kept: 2, lost: 0)])
  }

  @Test func `a payload that can't be decoded after a restart is an error`() async throws {
    let queue = TaskQueue(clock: clock)
    try await queue.enqueue(Illegible())
    let error = await #expect(throws: QueueTestError.self) {
      try await queue.pendingTasks(of: Illegible.self)
    }
    #expect(error?.code == .unreadablePayload)
    #expect(error?.description.contains("Illegible") == true)
  }

  // MARK: Sealed payloads

  /// A substitute for encryption, which inverts each byte, and can't open bytes without a marker.
  private let seal = PayloadSeal { payload, _ in
    Data([7] + payload.map { ~$0 })
  } open: { sealed, _ in
    guard sealed.first == 7 else { throw CocoaError(.fileReadCorruptFile) }
    return Data(sealed.dropFirst().map { ~$0 })
  }

  @Test func `a pending task with a sealed payload has the original payload`() async throws {
    let queue = TaskQueue(
      persistence: InMemoryStore().sealingPayloads(with: seal),
      clock: clock
    )
    try await queue.enqueue(Letter("secret"))
    #expect(try await queue.pendingTasks(of: Letter.self).map(\.payload) == [Letter("secret")])
    #expect(try await queue.expectEnqueued(Letter("secret")) != nil)
  }

  @Test func `the error for a payload that can't be unsealed does not blame the type`()
    async throws
  {
    let base = InMemoryStore()
    try await TaskQueue(persistence: base.sealingPayloads(with: seal), clock: clock)
      .enqueue(Letter("secret"))
    let unsealed = await #expect(throws: QueueTestError.self) {
      try await TaskQueue(persistence: base, clock: clock).pendingTasks(of: Letter.self)
    }
    #expect(unsealed?.description.contains("is sealed") == true)
    let other = PayloadSeal { payload, _ in
      payload
    } open: { _, _ in
      throw CocoaError(.fileReadCorruptFile)
    }
    let unopened = await #expect(throws: TaskQueueError.self) {
      try await TaskQueue(persistence: base.sealingPayloads(with: other), clock: clock)
        .pendingTasks(of: Letter.self)
    }
    #expect(unopened?.code == .unopenedPayload)
  }

  // MARK: Expectations

  @Test func `an expected task is found by payload and date`() async throws {
    let queue = TaskQueue(clock: clock)
    try await queue.enqueue(Letter("a"))
    let later = try await queue.enqueue(Letter("a"), availableDate: clock.date + 60.123_456_7)
    let found = try await queue.expectEnqueued(
      Letter("a"),
      availableDate: clock.date + 60.123_456_7
    )
    #expect(found?.id == later.id)
  }

  @Test(arguments: [
    ("b", 0.0, "Letter(text: \"b\")"),
    ("a", 60.0, "Its Letter tasks: Letter(text: \"a\")"),
  ])
  func `a missing task is an issue that lists the existing tasks`(
    text: String,
    delay: Double,
    message: String
  ) async throws {
    let queue = TaskQueue(name: "post", clock: clock)
    try await queue.enqueue(Letter("a"))
    try await withKnownIssue {
      try await queue.expectEnqueued(Letter(text), availableDate: clock.date + delay)
    } matching: { issue in
      issue.comments.contains { $0.rawValue.contains(message) && $0.rawValue.contains("'post'") }
    }
  }
}

/// A store that returns at most seven tasks at a time.
private struct ThriftyStore: ForwardingStore {
  let base: any Persistence

  func tasks(
    matching filter: TaskFilter,
    after id: TaskID?,
    limit: Int,
    newestFirst: Bool
  ) async throws -> [TaskRecord] {
    try await base.tasks(matching: filter, after: id, limit: min(limit, 7))
  }
}
