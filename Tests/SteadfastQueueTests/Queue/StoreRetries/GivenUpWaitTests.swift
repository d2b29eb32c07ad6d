import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

/// Tests calls that wait for another call while the store is unavailable, and are cancelled.
@Suite(.virtualTime) struct GivenUpWaitTests {
  private let clock: VirtualClock
  private let store = FaultInjectingStore()
  private let queue: TaskQueue

  init() throws {
    clock = try #require(VirtualTime.current).clock
    queue = TaskQueue(persistence: store, clock: clock)
  }

  /// Cancels the second call while the first one waits for the unavailable store.
  private func cancelSecondCall(
    whileStoring kind: String,
    first: @escaping @Sendable () async throws -> Void,
    second: @escaping @Sendable () async throws -> Void
  ) async throws {
    store.inject(.transientError, times: nil) { $0.changes.contains(kind) }
    async let other: Void = first()
    try await clock.sleep(for: .seconds(1))
    await withTaskGroup { group in
      group.addTask { await #expect(throws: CancellationError.self) { try await second() } }
      try? await clock.sleep(for: .seconds(1))
      group.cancelAll()
    }
    store.restore()
    try await other
  }

  @Test func `a call that waits for another call with the same unique key can be cancelled`()
    async throws
  {
    @Sendable func replace(with text: String) async throws {
      try await queue.enqueue(Note(text), uniqueKey: "k", onDuplicate: .replace)
    }
    let events = queue.events
    let task = try await queue.enqueue(Note("a"), uniqueKey: "k")
    try await cancelSecondCall(whileStoring: "insert") {
      try await replace(with: "b")
    } second: {
      try await replace(with: "c")
    }
    #expect(try await task.record()?.payload(as: Note.self) == Note("b"))
    // The lock was passed on to the next call.
    try await replace(with: "d")
    #expect(try await task.record()?.payload(as: Note.self) == Note("d"))
    await queue.shutDown()
    var ids: [TaskID] = []
    for await event in events {
      if case .enqueued(let record) = event { ids.append(record.id) }
      if case .updated(let id) = event { ids.append(id) }
    }
    #expect(ids == [task.id, task.id, task.id])
  }

  @Test
  func `a call that waits for another change of the same task can be cancelled`() async throws {
    let task = try await queue.enqueue(Note("a"))
    try await cancelSecondCall(whileStoring: "pause") { [queue] in
      _ = try await queue.pause(task.id)
    } second: {
      _ = try await task.cancel()
    }
    #expect(try await task.record()?.state == .paused)
    #expect(try await task.cancel())
  }

  @Test func `cancelling a call that waits for several keys unlocks the keys that it has locked`()
    async throws
  {
    let availability = StoreAvailability()
    let turns = KeyedMutex(availability)
    try await turns.lock(["b"])
    await withTaskGroup { group in
      group.addTask {
        await #expect(throws: CancellationError.self) { try await turns.lock(["a", "b", "c"]) }
      }
      group.addTask {
        await #expect(throws: CancellationError.self) {
          try await turns.waitForCurrentHolder(of: "b")
        }
      }
      group.cancelAll()
      try? await clock.sleep(for: .seconds(1))
      // While the store is available, cancelled calls still wait.
      #expect(turns.count == 2)
      await availability.markUnavailable { await group.waitForAll() }
    }
    #expect(turns.count == 1)
    turns.unlock(["b"])
    #expect(turns.count == 0)
  }

  @Test
  func `if the store is available, a cancelled call still waits for earlier calls`() async throws {
    let task = try await queue.enqueue(Note("a"), uniqueKey: "k")
    store.inject(.hang) { $0.changes.contains("insert") }
    store.inject(.hang) { $0.changes.contains("pause") }
    for change in ["b", "pause"] {
      async let first: Void = {
        if change == "pause" {
          _ = try await queue.pause(task.id)
        } else {
          try await queue.enqueue(Note(change), uniqueKey: "k", onDuplicate: .replace)
        }
      }()
      try await store.waitForHeldCalls()
      try await withThrowingTaskGroup { group in
        group.addTask { [queue] in
          if change == "pause" {
            _ = try await task.cancel()
          } else {
            try await queue.enqueue(Note("c"), uniqueKey: "k", onDuplicate: .replace)
          }
        }
        group.cancelAll()
        try await clock.sleep(for: .seconds(1))
        store.letGo()
        try await group.waitForAll()
      }
      try await first
      if change == "b" { #expect(try await task.record()?.payload(as: Note.self) == Note("c")) }
    }
    #expect(try await task.outcome() == .cancelled)
  }

  @Test func `a cancelled run doesn't wait for a call that waits for the store`()
    async throws
  {
    await queue.register(Note.self) { [clock] _, _ in
      try await clock.sleep(for: .seconds(1))
      throw Refusal("not yet")
    }
    let task = try await queue.enqueue(Note("a"))
    let token = TaskToken(taskID: task.id, high: 1, low: 2)
    store.inject(.transientError, times: nil) { $0.changes.contains("complete") }
    let error = try await withThrowingTaskGroup { [queue] group in
      group.addTask { await queueError { try await queue.run() } }
      try await clock.sleep(for: .milliseconds(500))
      async let completion = queue.complete(token)
      // The attempt's result waits until the completion is stored. The cancellation waits for both.
      try await clock.sleep(for: .seconds(1))
      #expect(try await task.cancel())
      try await clock.sleep(for: .milliseconds(500))
      group.cancelAll()
      let error = try await group.next()
      #expect(clock.now.offset == .seconds(2))
      store.restore()
      #expect(try await !completion)
      return error
    }
    #expect(error??.code == .storeFailed)
    #expect(try await queue.runAvailable() == 0)
    #expect(try await task.outcome() == .cancelled)
  }

  @Test func `an update that waits for the result of an attempt can be cancelled`() async throws {
    await queue.register(Note.self) { _, _ in throw Refusal("not yet") }
    let task = try await queue.enqueue(Note("a"))
    try await cancelSecondCall(whileStoring: "retry") { [queue] in
      let count = try await queue.runAvailable()
      #expect(count == 1)
    } second: { [queue] in
      _ = try await queue.update(task.id, priority: .high)
    }
    #expect(try await task.record()?.priority == .normal)
  }
}
