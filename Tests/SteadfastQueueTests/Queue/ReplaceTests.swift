import SteadfastTesting
import Synchronization
import TestSupport
import Testing

@testable import SteadfastQueue

/// Tests concurrent calls that replace the task with a unique key.
@Suite(.virtualTime) struct ReplaceTests {
  @Test func `replacements by many concurrent callers update a single task`() async throws {
    let clock = try #require(VirtualTime.current).clock
    let queue = TaskQueue(persistence: SlowReplacingStore(clock), clock: clock)
    let count = 1_200
    try await withThrowingTaskGroup(of: EnqueuedTask.self) { group in
      for number in 0..<count {
        group.addTask {
          try await queue.enqueue(Note("\(number)"), uniqueKey: "k", onDuplicate: .replace)
        }
      }
      var tasks: [EnqueuedTask] = []
      for try await task in group { tasks.append(task) }
      #expect(tasks.count == count)
      #expect(tasks.count(where: \.isNew) == 1)
      #expect(Set(tasks.map(\.id)).count == 1)
    }
    #expect(try await queue.count == 1)
  }

  @Test func `the event of a replacement precedes the event of the attempt`() async throws {
    let clock = try #require(VirtualTime.current).clock
    let store = FaultInjectingStore()
    let queue = TaskQueue(persistence: store, clock: clock)
    await queue.register(Note.self) { _, _ in }
    let events = queue.events
    try await queue.enqueue(Note("a"), uniqueKey: "k")
    store.inject(.hang, .afterEffect) { $0.changes.contains("insert") }
    async let other = queue.enqueue(Note("b"), uniqueKey: "k", onDuplicate: .replace)
    try await store.waitForHeldCalls()
    async let count = queue.runAvailable()
    try await clock.sleep(for: .seconds(1))
    store.letGo()
    #expect(try await (other.isNew, count) == (false, 1))
    var kinds: [String] = []
    for await event in events {
      kinds.append(String("\(event)".prefix { $0 != ":" }))
      if case .succeeded = event { break }
    }
    #expect(kinds == ["enqueued", "updated", "started", "succeeded"])
  }
}

/// A store that takes a second to replace a task, and reports a duplicate during that time.
private final class SlowReplacingStore: ForwardingStore {
  let base: any Persistence = InMemoryStore()
  private let clock: VirtualClock
  private let replacing = Mutex<TaskID?>(nil)

  init(_ clock: VirtualClock) { self.clock = clock }

  func apply(_ batch: [TaskChange], durability: Durability) async throws -> [ChangeOutcome] {
    guard case .insert(let record, .replace) = batch.first else {
      return try await base.apply(batch, durability: durability)
    }
    let other = replacing.withLock { replacing -> TaskID? in
      guard replacing == nil else { return replacing }
      replacing = record.id
      return nil
    }
    try? await clock.sleep(for: .seconds(1))
    if let other { return [.duplicate(of: other)] }
    defer { replacing.withLock { $0 = nil } }
    return try await base.apply(batch, durability: durability)
  }
}
