import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

/// Calls that wait for others, which last as long as the store is gone, can be cancelled.
@Suite(.virtualTime) struct GivenUpWaitTests {
  private let clock: VirtualClock
  private let store = FaultInjectingStore()
  private let queue: TaskQueue

  init() throws {
    clock = try #require(VirtualTime.current).clock
    queue = TaskQueue(persistence: store, clock: clock)
  }

  /// Cancels the second call while the store holds what the first one stores.
  private func giveUp(
    whileStoring kind: String,
    _ first: @escaping @Sendable () async throws -> Void,
    _ second: @escaping @Sendable () async throws -> Void
  ) async throws {
    store.inject(.hang) { $0.changes.contains(kind) }
    async let other: Void = first()
    try await store.waitForHeldCalls()
    await cancel(second)
    store.letGo()
    try await other
  }

  /// Cancels a call when it waits.
  private func cancel(_ call: @escaping @Sendable () async throws -> Void) async {
    await withTaskGroup { group in
      group.addTask { await #expect(throws: CancellationError.self) { try await call() } }
      try? await clock.sleep(for: .seconds(1))
      group.cancelAll()
    }
  }

  @Test func `a call that waits for its turn at a unique key`() async throws {
    @Sendable func replace(with text: String) async throws {
      try await queue.enqueue(Note(text), uniqueKey: "k", onDuplicate: .replace)
    }
    let events = queue.events
    let task = try await queue.enqueue(Note("a"), uniqueKey: "k")
    try await giveUp(whileStoring: "insert") {
      try await replace(with: "b")
    } _: {
      try await replace(with: "c")
    }
    #expect(try await task.record()?.payload(as: Note.self) == Note("b"))
    // The turn was passed on: the next call has it.
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

  @Test func `a call that waits for another change of its task`() async throws {
    let task = try await queue.enqueue(Note("a"))
    try await giveUp(whileStoring: "pause") { [queue] in
      _ = try await queue.pause(task.id)
    } _: {
      _ = try await task.cancel()
    }
    #expect(try await task.record()?.state == .paused)
    #expect(try await task.cancel())
  }

  @Test func `a call that waits for its turn at several keys gives back those that it has`()
    async throws
  {
    let turns = KeyedTurns()
    try await turns.begin(["b"])
    await cancel {
      try await turns.begin(["a", "b", "c"])
    }
    #expect(turns.count == 1)
    turns.end(["b"])
    #expect(turns.count == 0)
  }

  @Test func `an update that waits for the end of an attempt`() async throws {
    await queue.register(Note.self) { _, _ in throw Refusal("not yet") }
    let task = try await queue.enqueue(Note("a"))
    try await giveUp(whileStoring: "retry") { [queue] in
      let count = try await queue.runAvailable()
      #expect(count == 1)
    } _: { [queue] in
      _ = try await queue.update(task.id, priority: .high)
    }
    #expect(try await task.record()?.priority == .normal)
  }
}
