import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// Tests the limits of concurrent tasks and of the time for attempts and tasks.
@Suite(.virtualTime) struct HandlerLimitTests {
  private let clock: VirtualClock
  private let log = Log<String>()

  init() throws { clock = try #require(VirtualTime.current).clock }

  private func makeQueue(
    configuration: TaskQueueConfiguration = TaskQueueConfiguration(),
    on store: some Persistence = InMemoryStore()
  ) -> TaskQueue { TaskQueue(persistence: store, configuration: configuration, clock: clock) }

  @Test func `a name's limit is the maximum number of its tasks that run at the same time`()
    async throws
  {
    let queue = makeQueue(configuration: TaskQueueConfiguration(maxConcurrentTasks: 8))
    let limited = Log<Int>()
    let running = Counter()
    await queue.register(Note.self, maxConcurrentTasks: 3) { [clock] _, _ in
      limited.add(running.add(1))
      try await clock.sleep(for: .seconds(10))
      running.add(-1)
    }
    let others = Log<Duration>()
    await queue.register(name: "Other") { [clock] _, _ in others.add(clock.now.offset) }
    try await queue.enqueue(contentsOf: (0..<10).map { Note("\($0)") })
    for _ in 0..<10 { try await queue.enqueue(name: "Other") }
    #expect(try await queue.runAvailable() == 20)
    #expect(limited.entries.max() == 3)
    #expect(others.entries == Array(repeating: .zero, count: 10))
    #expect(clock.now.offset == .seconds(40))
  }

  @Test func `an attempt that exceeds its time limit fails`() async throws {
    let queue = makeQueue(configuration: TaskQueueConfiguration(backoff: .constant(.seconds(5))))
    await queue.register(Note.self) { [clock, log] _, context in
      log.add("\(clock.now.offset)")
      if context.retryCount < 2 { try? await clock.sleep(for: .seconds(3_600)) }
    }
    let task = try await queue.enqueue(Note("slow"), options: TaskOptions(timeLimit: .seconds(60)))
    let events = queue.events
    try await withRunning(queue) { _ = try await task.outcome() }
    #expect(log.entries == ["0.0 seconds", "65.0 seconds", "130.0 seconds"])
    for await event in events {
      guard case .failed(_, let reason, _, _) = event else { continue }
      #expect(reason.contains("60"))
      break
    }
  }

  @Test func `a task that isn't done before it expires is abandoned`() async throws {
    let queue = makeQueue(configuration: TaskQueueConfiguration(backoff: .constant(.seconds(60))))
    await queue.register(Note.self) { [log] note, _ in
      log.add(note.text)
      throw Refusal("offline")
    }
    let task = try await queue.enqueue(
      Note("news"),
      maxRetries: .alwaysRetry,
      options: TaskOptions(expiryDate: clock.date + 150)
    )
    try await withRunning(queue) {
      let outcome = try await task.outcome()
      #expect(outcome == .abandoned(reason: "offline"))
    }
    #expect(log.entries.count == 3)
    #expect(clock.now.offset == .seconds(120))
  }

  @Test func `a task that expired while the queue wasn't running isn't attempted`() async throws {
    let queue = makeQueue()
    await queue.register(Note.self) { [log] note, _ in log.add(note.text) }
    let task = try await queue.enqueue(
      Note("news"),
      options: TaskOptions(expiryDate: clock.date + 150)
    )
    try await clock.sleep(for: .seconds(150))
    try await queue.runAvailable()
    #expect(try await task.outcome() == .abandoned(reason: "the task expired before it was done"))
    #expect(log.entries.isEmpty)
  }

  @Test func `an error names the invalid argument, and nothing is added`() async throws {
    let queue = makeQueue()
    for (word, enqueue) in [
      ("timeLimit", { try await queue.enqueue(Note("a"), options: TaskOptions(timeLimit: .zero)) }),
      (
        "expiryDate",
        { [clock] in
          try await queue.enqueue(Note("a"), options: TaskOptions(expiryDate: clock.date))
        }
      ),
      (
        "availableDate",
        {
          let never = Date(timeIntervalSince1970: .nan)
          return try await queue.enqueue(Note("a"), availableDate: never)
        }
      ),
    ] as [(String, () async throws -> EnqueuedTask)] {
      let error = await #expect(throws: TaskQueueError.self) { _ = try await enqueue() }
      #expect(error?.code == .invalidArgument)
      #expect(error?.message.contains(word) == true)
    }
    #expect(try await queue.count == 0)
  }
}
