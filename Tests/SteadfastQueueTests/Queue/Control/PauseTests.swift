import SteadfastTesting
import Synchronization
import TestSupport
import Testing

@testable import SteadfastQueue

/// Pauses a queue between the claim of a task and the task's attempt.
@Suite(.virtualTime) struct PauseTests {
  private let clock: VirtualClock
  private let log = Log<String>()

  init() throws { clock = try #require(VirtualTime.current).clock }

  /// Makes a queue that is paused while its store returns the first claimed tasks.
  private func makeQueuePausedDuringClaim() async throws -> TaskQueue {
    let store = PausingStore()
    let queue = TaskQueue(persistence: store, clock: clock)
    store.onFirstClaim { await queue.pause() }
    await queue.register(Note.self) { [log] note, _ in log.add(note.text) }
    return queue
  }

  @Test func `a claimed task that hasn't started waits like all others while the queue is paused`()
    async throws
  {
    let queue = try await makeQueuePausedDuringClaim()
    let task = try await queue.enqueue(Note("claimed"))
    let events = queue.events
    try await withRunning(queue) {
      try await clock.sleep(for: .seconds(1))
      #expect(try await queue.tasks().map(\.state) == [.waiting])
      try await queue.enqueue(Note("urgent"), priority: .high)
      await queue.resume()
      #expect(try await task.outcome() == .succeeded)
    }
    #expect(log.entries == ["urgent", "claimed"])
    for await event in events {
      if case .released = event { Issue.record("no attempt had started") }
      if case .succeeded = event { break }
    }
  }

  @Test func `a queue that is paused and resumed repeatedly makes progress`() async throws {
    // Each claim takes longer than the time between two pauses.
    let store = FaultInjectingStore()
    store.inject(.delay(.seconds(1), on: clock), .afterEffect, times: nil) { $0.kind == .claim }
    let queue = TaskQueue(
      persistence: store,
      configuration: TaskQueueConfiguration(maxConcurrentTasks: 2),
      clock: clock
    )
    await queue.register(Note.self) { [log] note, _ in log.add(note.text) }
    try await queue.enqueue(contentsOf: ["a", "b", "c", "d"].map { Note($0) })
    try await withRunning(queue) {
      for _ in 0..<10 {
        await queue.pause()
        log.add("paused")
        try await clock.sleep(for: .milliseconds(600))
        log.add("resumed")
        await queue.resume()
        try await clock.sleep(for: .milliseconds(600))
      }
    }
    let entries = log.entries
    #expect(entries.filter { $0.count == 1 }.sorted() == ["a", "b", "c", "d"], "\(entries)")
    // No attempt starts between the end of a pause call and the next resume.
    for (entry, next) in zip(entries, entries.dropFirst()) where entry == "paused" {
      #expect(next == "resumed")
    }
  }

  /// Makes a queue that must start an attempt before it can be paused again.
  ///
  /// The last pause released the queue's claimed tasks.
  private func makeQueueThatReleasedTasks(
    on store: FaultInjectingStore,
    workers: Int = 2,
    beforeEach body: @escaping @Sendable (TaskQueue) async -> Void = { _ in }
  ) async throws -> TaskQueue {
    store.inject(.hang, .afterEffect, times: nil) { $0.kind == .claim }
    let queue = TaskQueue(
      persistence: store,
      configuration: TaskQueueConfiguration(maxConcurrentTasks: workers),
      clock: clock
    )
    await queue.register(Note.self) { [log, unowned queue] note, _ in
      await body(queue)
      log.add(note.text)
    }
    try await queue.enqueue(contentsOf: ["a", "b"].map { Note($0) })
    async let attempts = queue.runAvailable()
    try await store.waitForHeldCalls()
    await queue.pause()
    store.letGo()
    #expect(try await attempts == 0)
    await queue.resume()
    return queue
  }

  @Test func `a pause returns even if the claim that it waits for is empty`() async throws {
    let store = FaultInjectingStore()
    // A second worker would claim again, and its claim would end the wait.
    let queue = try await makeQueueThatReleasedTasks(on: store, workers: 1)
    #expect(try await queue.cancelAll() == 2)
    try await withRunning(queue) {
      try await store.waitForHeldCalls()
      async let pause: Void = queue.pause()
      try await clock.sleep(for: .seconds(1))
      store.letGo()
      await pause
    }
    #expect(log.entries == [])
  }

  @Test func `a handler may pause the queue while another pause waits for an attempt to start`()
    async throws
  {
    let store = FaultInjectingStore()
    let queue = try await makeQueueThatReleasedTasks(on: store) { await $0.pause() }
    async let attempts = queue.runAvailable()
    try await store.waitForHeldCalls()
    async let pause: Void = queue.pause()
    try await clock.sleep(for: .seconds(1))
    // Adding this task wakes a worker.
    try await queue.enqueue(Note("c"))
    try await clock.sleep(for: .seconds(1))
    store.restore()
    await pause
    #expect(try await attempts == 2)
    #expect(log.entries.sorted() == ["a", "b"])
  }

  @Test func `a pause doesn't wait for an attempt that can't start because of a shutdown`()
    async throws
  {
    let store = FaultInjectingStore()
    let queue = try await makeQueueThatReleasedTasks(on: store) { queue in
      queue.beginShutDown()
      await queue.pause()
    }
    async let run: Void = queue.run()
    try await store.waitForHeldCalls()
    async let pause: Void = queue.pause()
    try await clock.sleep(for: .seconds(1))
    store.restore()
    await pause
    try await run
    #expect(log.entries == ["a"])
  }

  @Test
  func `a claimed task that hasn't started can be cancelled at once while the queue is paused`()
    async throws
  {
    let queue = try await makeQueuePausedDuringClaim()
    let task = try await queue.enqueue(Note("claimed"))
    try await withRunning(queue) {
      try await clock.sleep(for: .seconds(1))
      #expect(try await task.cancel())
      #expect(try await task.outcome() == .cancelled)
    }
    #expect(log.entries == [])
  }
}

/// A store in memory that runs an action once, before a claim returns.
private final class PausingStore: ForwardingStore {
  let base: any Persistence = InMemoryStore()
  private let action = Mutex<(@Sendable () async -> Void)?>(nil)

  func onFirstClaim(_ action: @escaping @Sendable () async -> Void) {
    self.action.withLock { $0 = action }
  }

  func claim(_ request: ClaimRequest) async throws -> Claim {
    let claim = try await base.claim(request)
    guard !claim.tasks.isEmpty else { return claim }
    let action = action.withLock { action in
      defer { action = nil }
      return action
    }
    await action?()
    return claim
  }
}
