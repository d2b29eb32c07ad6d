import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

/// Tests `beginShutDown(within:)`, which doesn't wait, so that a signal handler can call it.
@Suite(.virtualTime) struct ShutDownLimitTests {
  private let clock: VirtualClock
  private let log = Log<String>()

  init() throws { clock = try #require(VirtualTime.current).clock }

  /// Runs a queue with one attempt of 10 s, and shuts it down after 1 s.
  ///
  /// - Returns: When the run ended, and how many tasks remain.
  private func runQueue(
    shuttingDownWith shutDown: @escaping @Sendable (TaskQueue) -> Void
  ) async throws -> (end: Duration, left: Int) {
    let queue = TaskQueue(clock: clock)
    await queue.register(Note.self) { [log, clock] note, _ in
      try await clock.sleep(for: .seconds(10))
      log.add(note.text)
    }
    try await queue.enqueue(Note("slow"), maxRetries: 0)
    try await withThrowingTaskGroup { group in
      group.addTask { try await queue.run() }
      try await clock.sleep(for: .seconds(1))
      shutDown(queue)
      try await group.waitForAll()
    }
    return (clock.now.offset, try await queue.count)
  }

  @Test func `attempts that end within the limit aren't cut short`() async throws {
    let (end, left) = try await runQueue { $0.beginShutDown(within: .seconds(20)) }
    #expect(end == .seconds(10))
    #expect(left == 0)
    #expect(log.entries == ["slow"])
  }

  @Test(arguments: [Duration.seconds(3), .zero, .seconds(-1)])
  func `attempts are cut short after the limit, and their tasks are released unchanged`(
    _ limit: Duration
  ) async throws {
    let (end, left) = try await runQueue { $0.beginShutDown(within: limit) }
    #expect(end == .seconds(1) + max(.zero, limit))
    #expect(left == 1)
    #expect(log.entries.isEmpty)
  }

  @Test
  func `with the longest possible limit, a shutdown never cuts attempts short`() async throws {
    let (end, _) = try await runQueue { $0.beginShutDown(within: .seconds(Int64.max)) }
    #expect(end == .seconds(10))
  }

  @Test
  func `if a queue is shut down with several limits, the limit that ends first applies`()
    async throws
  {
    let (shortened, _) = try await runQueue { queue in
      queue.beginShutDown(within: .seconds(4))
      queue.beginShutDown(within: .seconds(2))
    }
    #expect(shortened == .seconds(3))
  }

  @Test func `a later, longer limit has no effect`() async throws {
    let (end, _) = try await runQueue { queue in
      queue.beginShutDown(within: .seconds(2))
      queue.beginShutDown(within: .seconds(4))
    }
    #expect(end == .seconds(3))
  }

  @Test func `a second shutdown can shorten the limit`() async throws {
    let queue = TaskQueue(clock: clock)
    await queue.register(Note.self) { [clock] _, _ in try await clock.sleep(for: .seconds(60)) }
    try await queue.enqueue(Note("slow"))
    try await withThrowingTaskGroup { group in
      group.addTask { try await queue.run() }
      try await clock.sleep(for: .seconds(1))
      queue.beginShutDown(within: .seconds(30))
      try await clock.sleep(for: .seconds(5))
      queue.beginShutDown(within: .zero)
      try await group.waitForAll()
    }
    #expect(clock.now.offset == .seconds(6))
    #expect(try await queue.count == 1)
  }

  @Test func `a limit given while the queue isn't running has no effect`() async throws {
    let queue = TaskQueue(clock: clock)
    queue.beginShutDown(within: .seconds(5))
    await queue.shutDown()
    await #expect(throws: TaskQueueError.self) { try await queue.run() }
    #expect(clock.now.offset == .zero)
  }
}
