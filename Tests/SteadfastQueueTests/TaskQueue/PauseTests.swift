import SteadfastTesting
import Synchronization
import TestSupport
import Testing

@testable import SteadfastQueue

/// Pauses that come between the claim of a task and its attempt.
@Suite(.virtualTime) struct PauseTests {
  private let clock: VirtualClock
  private let log = Log<String>()

  init() throws { clock = try #require(VirtualTime.current).clock }

  /// A queue that is paused by its store, while that hands out the first tasks.
  private func queuePausedDuringClaim() async throws -> TaskQueue {
    let store = PausingStore()
    let queue = TaskQueue(persistence: store, clock: clock)
    store.onFirstClaim { await queue.pause() }
    await queue.register(Note.self) { [log] note, _ in log.add(note.text) }
    return queue
  }

  @Test func `a task that was not begun waits like all others while the queue is paused`()
    async throws
  {
    let queue = try await queuePausedDuringClaim()
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
      if case .released = event { Issue.record("no attempt was begun that could be cut short") }
      if case .succeeded = event { break }
    }
  }

  @Test func `a queue that is paused and resumed all the time gets on`() async throws {
    // Each claim takes longer than the queue is left in peace.
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
    // No attempt has begun after a pause had returned.
    for (entry, next) in zip(entries, entries.dropFirst()) where entry == "paused" {
      #expect(next == "resumed")
    }
  }

  @Test func `a task that was not begun is taken out at once while the queue is paused`()
    async throws
  {
    let queue = try await queuePausedDuringClaim()
    let task = try await queue.enqueue(Note("claimed"))
    try await withRunning(queue) {
      try await clock.sleep(for: .seconds(1))
      #expect(try await task.cancel())
      #expect(try await task.outcome() == .cancelled)
    }
    #expect(log.entries == [])
  }
}

/// A store in memory that does something else once, between a claim and its answer.
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
