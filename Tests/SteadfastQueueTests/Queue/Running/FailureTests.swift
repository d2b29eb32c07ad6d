import Foundation
import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

@Suite struct FailureTests {
  private let clock = VirtualClock()
  private let log = Log<String>()

  private func makeQueue(on clock: VirtualClock? = nil) async -> TaskQueue {
    TaskQueue(
      configuration: TaskQueueConfiguration(
        backoff: .exponential(from: .seconds(10), multiplier: 2),
        randomness: .seeded(1)
      ),
      clock: clock ?? self.clock
    )
  }

  /// Makes a queue whose handler logs the second of each attempt, and fails.
  private func makeFailingQueue(
    throwing error: any Error = Refusal(),
    on clock: VirtualClock? = nil
  ) async -> TaskQueue {
    let (clock, log) = (clock ?? self.clock, log)
    let queue = await makeQueue(on: clock)
    let start = clock.date
    await queue.register(Note.self) { _, _ in
      log.add("\(Int(clock.date.timeIntervalSince(start)))")
      throw error
    }
    return queue
  }

  @Test func `the delay doubles after each failure, until the task is abandoned`()
    async throws
  {
    try await withVirtualTime { time in
      let queue = await makeFailingQueue(on: time.clock)
      let task = try await queue.enqueue(Note("in vain"), maxRetries: 4)
      let outcome = try await withRunning(queue) { try await task.outcome() }
      #expect(outcome == .abandoned(reason: "refused"))
      #expect(log.entries == ["0", "10", "30", "70", "150"])
      let letters = try await queue.tasks(matching: .deadLetters)
      #expect(letters.map(\.id) == [task.id])
      #expect(letters.map(\.lastError) == ["refused"])
      #expect(try await queue.count == 0)
    }
  }

  @Test func `a custom backoff gets the previous delay`() async throws {
    let log = log
    try await withVirtualTime { time in
      let configuration = TaskQueueConfiguration(
        backoff: .custom { retry in
          log.add("\(retry.number) after \(retry.delay)")
          return .seconds(10) * retry.number
        }
      )
      let queue = TaskQueue(configuration: configuration, clock: time.clock)
      await queue.register(Note.self) { _, _ in throw Refusal() }
      let task = try await queue.enqueue(Note("in vain"), maxRetries: 3)
      try await withRunning(queue) { _ = try await task.outcome() }
    }
    #expect(log.entries == ["1 after 0.0 seconds", "2 after 10.0 seconds", "3 after 20.0 seconds"])
  }

  @Test func `a task without backoff is retried right after the other available tasks`()
    async throws
  {
    let queue = await makeQueue()
    let log = log
    await queue.register(Note.self) { note, _ in
      log.add(note.text)
      if note.text == "stubborn" { throw Refusal() }
    }
    let stubborn = try await queue.enqueue(Note("stubborn"), maxRetries: 2, usesBackoff: false)
    try await queue.enqueue(contentsOf: [Note("a"), Note("b")])
    let outcome = try await withRunning(queue) { try await stubborn.outcome() }
    #expect(outcome == .abandoned(reason: "refused"))
    #expect(log.entries == ["stubborn", "a", "b", "stubborn", "stubborn"])
  }

  @Test func `a pass ends even if a task fails immediately and forever`() async throws {
    let queue = await makeFailingQueue()
    try await queue.enqueue(Note("endless"), maxRetries: .alwaysRetry, usesBackoff: false)
    for _ in 0..<3 { #expect(try await queue.runAvailable() == 1) }
    #expect(try await queue.tasks().map(\.retryCount) == [3])
  }

  @Test func `a task that is always retried is never abandoned`() async throws {
    let queue = await makeFailingQueue()
    try await queue.enqueue(Note("for ever"), maxRetries: .alwaysRetry, usesBackoff: false)
    for _ in 0..<200 {
      clock.advance(by: .seconds(1))
      try await queue.runAvailable()
    }
    #expect(try await queue.tasks().map(\.retryCount) == [200])
  }

  @Test func `an error that forbids retries abandons the task at once`() async throws {
    let queue = await makeFailingQueue(throwing: TaskAbandoned("no such album"))
    let task = try await queue.enqueue(Note("hopeless"))
    let outcome = try await withRunning(queue) { try await task.outcome() }
    #expect(outcome == .abandoned(reason: "no such album"))
    #expect(log.count == 1)
  }

  @Test func `an error that sets the delay is respected, and counts as a retry`() async throws {
    struct Throttled: RetryAwareError {
      var retryDecision: RetryDecision { .retry(after: .seconds(7)) }
    }
    try await withVirtualTime { time in
      let queue = await makeFailingQueue(throwing: Throttled(), on: time.clock)
      let task = try await queue.enqueue(Note("throttled"), maxRetries: 2)
      _ = try await withRunning(queue) { try await task.outcome() }
      #expect(log.entries == ["0", "7", "14"])
    }
  }

  @Test func `a snooze doesn't count as a retry`() async throws {
    let queue = await makeFailingQueue(throwing: TaskSnoozed(for: .seconds(45)))
    try await queue.enqueue(Note("not yet"), maxRetries: 0)
    #expect(try await queue.runAvailable() == 1)
    let record = try #require(try await queue.tasks().first)
    #expect(record.retryCount == 0)
    #expect(record.lastError == nil)
    #expect(record.availableDate == clock.date + 45)
  }

  @Test func `CancellationError is an ordinary failure unless the attempt was cancelled`()
    async throws
  {
    let queue = await makeFailingQueue(throwing: CancellationError())
    try await queue.enqueue(Note("confused"))
    try await queue.runAvailable()
    #expect(try await queue.tasks().map(\.retryCount) == [1])
  }

  @Test func `a long error is shortened`() async throws {
    let queue = await makeFailingQueue(throwing: Refusal(String(repeating: "x", count: 5000)))
    try await queue.enqueue(Note("wordy"))
    try await queue.runAvailable()
    #expect(try await queue.tasks().first?.lastError?.utf8.count == 4095)
  }

  @Test func `the number of retained dead letters is limited`() async throws {
    let queue = TaskQueue(
      configuration: TaskQueueConfiguration(abandonedRetention: Retention(maxCount: 3)),
      clock: clock
    )
    await queue.register(Note.self) { _, _ in throw TaskAbandoned("no") }
    try await queue.enqueue(contentsOf: (1...10).map { Note("\($0)") })
    try await queue.runAvailable()
    try await queue.runAvailable()
    #expect(try await queue.count(matching: .deadLetters) == 3)
  }

  // MARK: Handlers and payloads

  @Test func `a task without a handler waits until one is registered`() async throws {
    let queue = await makeQueue()
    let events = queue.events
    let task = try await queue.enqueue(Note("orphan"))
    #expect(try await queue.runAvailable() == 0)
    #expect(try await queue.contains(task.id))
    await queue.register(Note.self) { note, _ in log.add(note.text) }
    #expect(try await queue.runAvailable() == 1)
    var unhandled: [String] = []
    for await event in events {
      if case .unhandled(_, let reason) = event { unhandled.append(reason) }
      if case .succeeded = event { break }
    }
    #expect(unhandled.allSatisfy { $0 == "no handler is registered for the name 'Note'" })
    #expect(unhandled.count == 2)
  }

  @Test
  func `a task with an undecodable payload is parked with an error that names the missing key`()
    async throws
  {
    let store = InMemoryStore()
    let queue = TaskQueue(persistence: store, clock: clock)
    let broken = TaskRecord(
      id: .numbered(1),
      name: "Note",
      payload: StoredPayload(Array(#"{"secret":"s3cr3t"}"#.utf8), format: .json),
      createdDate: .seconds(0),
      availableDate: .seconds(0)
    )
    _ = try await store.apply(
      [
        .insert(broken, onDuplicate: .keep),
        .insert(.make(2), onDuplicate: .keep),
      ],
      durability: .durable
    )
    await queue.register(Note.self) { note, _ in log.add(note.text) }
    try await queue.runAvailable()
    #expect(log.entries == ["2"])
    let parked = try #require(try await queue.tasks().first)
    #expect(parked.state == .parked)
    #expect(parked.retryCount == 0)
    #expect(
      parked.lastError
        == "the payload of 'Note' can't be decoded as Note: the key 'text' is missing"
    )

    // A later version of the program can decode the payload.
    struct Secret: TaskPayload {
      static let taskName = "Note"
      var secret: String
    }
    let later = TaskQueue(persistence: store, clock: clock)
    await later.register(Secret.self) { payload, _ in log.add(payload.secret) }
    try await later.runAvailable()
    #expect(log.entries == ["2", "s3cr3t"])
    #expect(try await later.count == 0)
  }

  @Test func `a renamed type performs tasks with its former name`() async throws {
    struct Remark: TaskPayload {
      static let formerTaskNames = ["Note"]
      var text: String
    }
    let queue = await makeQueue()
    try await queue.enqueue(Note("old"))
    try await queue.enqueue(Remark(text: "new"))
    await queue.register(Remark.self) { remark, context in
      log.add("\(context.name): \(remark.text)")
    }
    try await queue.runAvailable()
    #expect(log.entries == ["Note: old", "FailureTests.Remark: new"])
  }
}
