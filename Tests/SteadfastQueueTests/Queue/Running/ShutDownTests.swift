import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

@Suite(.virtualTime) struct ShutDownTests {
  private let clock: VirtualClock

  init() throws { clock = try #require(VirtualTime.current).clock }

  /// Makes a queue whose tasks each take the number of seconds in their text.
  private func makeQueue(on store: some Persistence = InMemoryStore()) async -> TaskQueue {
    let queue = TaskQueue(
      persistence: store,
      configuration: TaskQueueConfiguration(maxConcurrentTasks: 4),
      clock: clock
    )
    await queue.register(Note.self) { [clock] note, _ in
      try await clock.sleep(for: .seconds(Int(note.text) ?? 0))
    }
    return queue
  }

  @Test
  func `attempts that end within the limit count, and all other tasks are released unchanged`()
    async throws
  {
    let queue = await makeQueue()
    let short = try await queue.enqueue(Note("20"))
    try await queue.enqueue(Note("3600"))
    try await withThrowingTaskGroup { group in
      group.addTask { try await queue.run() }
      try await clock.sleep(for: .seconds(1))
      await queue.shutDown(within: .seconds(30))
      try await group.waitForAll()
    }
    #expect(clock.now.offset == .seconds(31))
    #expect(try await short.outcome() == .succeeded)
    let left = try await queue.tasks()
    #expect(left.map(\.state) == [.waiting])
    #expect(left.map(\.retryCount) == [0])
  }

  @Test func `a shutdown returns as soon as all attempts have ended`() async throws {
    let queue = await makeQueue()
    try await queue.enqueue(Note("20"))
    try await withThrowingTaskGroup { group in
      group.addTask { try await queue.run() }
      try await clock.sleep(for: .seconds(1))
      await queue.shutDown(within: .seconds(3_600))
      #expect(clock.now.offset == .seconds(20))
      try await group.waitForAll()
    }
  }

  @Test func `a shutdown waits for a handler that ignores its cancellation`() async throws {
    let queue = TaskQueue(clock: clock)
    await queue.register(Note.self) { [clock] _, _ in
      await withUncancelled { try? await clock.sleep(for: .seconds(100)) }
    }
    let task = try await queue.enqueue(Note("a"))
    try await withThrowingTaskGroup { group in
      group.addTask { try await queue.run() }
      try await clock.sleep(for: .seconds(1))
      await queue.shutDown(within: .seconds(5))
      try await group.waitForAll()
    }
    #expect(clock.now.offset == .seconds(100))
    #expect(try await task.outcome() == .succeeded)
  }

  @Test func `an idle queue is shut down at once`() async throws {
    let queue = await makeQueue()
    await queue.shutDown(within: .seconds(3_600))
    await #expect(throws: TaskQueueError.self) { try await queue.run() }
    #expect(clock.now.offset == .zero)
  }

  @Test(arguments: StoreKind.allCases)
  func `a destroyed queue has no tasks, and rejects new ones`(
    kind: StoreKind
  ) async throws {
    try await kind.withStore { store in
      let queue = TaskQueue(persistence: store, clock: clock)
      await queue.register(Note.self) { [clock] _, _ in
        try await clock.sleep(for: .seconds(3_600))
      }
      let task = try await queue.enqueue(Note("a"))
      try await withThrowingTaskGroup { group in
        group.addTask { try await queue.run() }
        try await clock.sleep(for: .seconds(1))
        try await queue.destroy()
        try await group.waitForAll()
      }
      await #expect(throws: (any Error).self) { try await queue.enqueue(Note("b")) }
      await #expect(throws: (any Error).self) { try await queue.count }
      await #expect(throws: (any Error).self) { try await task.outcome() }
    }
  }

  @Test func `destroying a queue deletes its file, and a new queue may use the same URL`()
    async throws
  {
    try await withTemporaryFolder { folder in
      let url = folder.appending(path: "queue")
      let queue = TaskQueue(persistence: .jsonFile(at: url), clock: clock)
      try await queue.enqueue(Note("a"))
      #expect(FileManager.default.fileExists(atPath: url.path))
      try await queue.destroy()
      #expect(!FileManager.default.fileExists(atPath: url.path))
      let store = JSONFileStore(at: url)
      let next = TaskQueue(persistence: store, clock: clock)
      #expect(try await next.count == 0)
      try await next.enqueue(Note("b"))
      try await store.close()
    }
  }

  @Test func `statistics count remaining and completed tasks`() async throws {
    let queue = await makeQueue()
    try await queue.enqueue(Note("10"))
    try await queue.enqueue(Note("30"))
    try await queue.enqueue(Note("0"), availableDate: clock.date + 86_400)
    try await clock.sleep(for: .seconds(60))
    try await queue.runAvailable()
    let statistics = try await queue.statistics
    #expect(statistics.counts == [.waiting: 1])
    #expect(statistics.attempts == 2 && statistics.succeeded == 2 && statistics.failed == 0)
    #expect(statistics.waitTime.mean == .seconds(60))
    #expect(statistics.runTime.mean == .seconds(20))
    #expect(statistics.runTime.longest == .seconds(30))
    #expect(abs(statistics.throughput - 2 / 90) < 1e-9)
  }
}

/// Runs the body in a Swift task that isn't cancelled with the caller.
private func withUncancelled(_ body: @escaping @Sendable () async -> Void) async {
  await Task(executorPreference: RealWork.taskExecutor) { await body() }.value
}
