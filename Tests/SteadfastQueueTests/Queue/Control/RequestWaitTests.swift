import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// Tests which calls of the store a command for a task waits for.
@Suite(.virtualTime) struct RequestWaitTests {
  private let clock: VirtualClock

  init() throws { clock = try #require(VirtualTime.current).clock }

  @Test func `a command for a task that another process has claimed isn't repeated endlessly`()
    async throws
  {
    let base = InMemoryStore()
    let store = FaultInjectingStore(base)
    let queue = TaskQueue(name: "mail", persistence: store, clock: clock)
    let task = try await queue.enqueue(Note("a"))
    _ = try await base.claim(
      ClaimRequest(limit: 1, queue: "mail", names: ["Note": 1], now: clock.date)
    )
    let callCount = store.calls.count
    let error = await #expect(throws: TaskQueueError.self) { try await task.cancel() }
    #expect(error?.code == .storeFailed)
    #expect(error?.message.contains("'mail'") == true)
    #expect(store.calls.count < callCount + 10)
  }

  @Test func `a call that waits for a claim returns when the claim fails`() async throws {
    let store = FaultInjectingStore()
    store.inject(.hang, .afterEffect) { $0.kind == .claim }
    store.inject(.error(Refusal("the line is cut")), .afterEffect) { $0.kind == .claim }
    let queue = TaskQueue(persistence: store, clock: clock)
    await queue.register(Note.self) { _, _ in }
    let task = try await queue.enqueue(Note("a"))
    async let failure = queueError { try await queue.run() }
    try await store.waitForHeldCalls()
    async let error = queueError { try await task.cancel() }
    try await clock.sleep(for: .seconds(1))
    store.letGo()
    // The store has leased the task, but the answer was lost, so no queue knows the lease.
    #expect(await error?.code == .storeFailed)
    #expect(await failure?.message.contains("the line is cut") == true)
  }

  @Test func `a call waits for a pending claim even if another write fails`()
    async throws
  {
    let store = FaultInjectingStore()
    let queue = TaskQueue(
      persistence: store,
      configuration: TaskQueueConfiguration(maxConcurrentTasks: 2),
      clock: clock
    )
    await queue.register(Note.self) { [clock] note, _ in
      if note.text == "b" { Issue.record("no attempt may start after a failure") }
      try await clock.sleep(for: .seconds(2))
    }
    try await queue.enqueue(Note("a"))
    async let failure = queueError { try await queue.run() }
    try await clock.sleep(for: .seconds(1))
    store.inject(.error(Refusal())) { $0.changes.contains("succeed") }
    store.inject(.delay(.seconds(10), on: clock), .afterEffect) { $0.kind == .claim }
    let task = try await queue.enqueue(Note("b"))
    try await clock.sleep(for: .seconds(2))
    #expect(try await task.cancel())
    #expect(try await task.outcome() == .cancelled)
    #expect(clock.now.offset == .seconds(11))
    #expect(await failure?.code == .storeFailed)
  }

  @Test func `cancelling a task before its attempt doesn't count as an attempt`() async throws {
    let queue = TaskQueue(
      configuration: TaskQueueConfiguration(maxConcurrentTasks: 2),
      clock: clock
    )
    let other = Log<EnqueuedTask>()
    await queue.register(Note.self) { note, _ in
      if note.text == "b" { Issue.record("the task was cancelled before its attempt") }
      let isCancelled = try await other.entries[0].cancel()
      #expect(isCancelled)
    }
    let tasks = try await queue.enqueue(contentsOf: [Note("a"), Note("b")])
    other.add(tasks[1])
    #expect(try await queue.runAvailable() == 1)
    #expect(try await tasks[1].outcome() == .cancelled)
  }

  @Test func `a task that was skipped because of a change is performed after the change fails`()
    async throws
  {
    let store = ReservingStore()
    let queue = TaskQueue(persistence: store, clock: clock)
    await queue.register(Note.self) { _, _ in }
    try await withRunning(queue) {
      try await clock.sleep(for: .seconds(1))
      let task = try await queue.enqueue(Note("a"), availableDate: clock.date.addingTimeInterval(5))
      try await withThrowingTaskGroup { group in
        group.addTask { await #expect(throws: Refusal.self) { try await task.cancel() } }
        try await clock.sleep(for: .seconds(60))
        store.releaseHold()
        try await group.waitForAll()
      }
      #expect(try await task.outcome() == .succeeded)
      #expect(clock.now.offset == .seconds(61))
    }
  }
}

/// A store that hands out no tasks while it is cancelling a task, and then fails to cancel it.
private final class ReservingStore: ForwardingStore {
  let base: any Persistence = InMemoryStore()
  private let isHeld = Counter()
  private let held = Waiters<Void>()

  func releaseHold() {
    isHeld.add(-1)
    held.resumeAll(with: .success(()))
  }

  func apply(_ batch: [TaskChange], durability: Durability) async throws -> [ChangeOutcome] {
    guard batch.contains("cancel") else {
      return try await base.apply(batch, durability: durability)
    }
    isHeld.add(1)
    try await held.wait { isHeld.value == 0 ? .success(()) : nil }
    throw Refusal("the disk is on fire")
  }

  func claim(_ request: ClaimRequest) async throws -> Claim {
    isHeld.value > 0 ? Claim(tasks: [], nextDate: nil) : try await base.claim(request)
  }
}
