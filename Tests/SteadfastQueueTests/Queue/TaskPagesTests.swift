import Foundation
import Synchronization
import TestSupport
import Testing

@testable import SteadfastQueue

/// Tests calls that affect more tasks than a store returns at once.
@Suite struct TaskPagesTests {
  /// A store that runs an action, such as enqueueing tasks, whenever tasks are listed.
  private final class BusyStore: ForwardingStore {
    let base: any Persistence = InMemoryStore()
    let batches = Log<Int>()
    private let action = Mutex<(@Sendable () async throws -> Void)?>(nil)

    func setListingAction(_ action: (@Sendable () async throws -> Void)?) {
      self.action.withLock { $0 = action }
    }

    func apply(_ batch: [TaskChange], durability: Durability) async throws -> [ChangeOutcome] {
      batches.add(batch.count)
      return try await base.apply(batch, durability: durability)
    }

    func tasks(
      matching filter: TaskFilter,
      after id: TaskID?,
      limit: Int,
      newestFirst: Bool
    ) async throws -> [TaskRecord] {
      let page = try await base.tasks(
        matching: filter,
        after: id,
        limit: limit,
        newestFirst: newestFirst
      )
      if limit > 1 { try await action.withLock { $0 }?() }
      return page
    }
  }

  private let store = BusyStore()
  private let queue: TaskQueue

  init() { queue = TaskQueue(persistence: store) }

  @Test
  func `cancelling all tasks affects only existing tasks, even if others are constantly added`()
    async throws
  {
    let tasks = try await queue.enqueue(contentsOf: (0..<2_500).map { Note("\($0)") })
    let addedLater = Log<TaskID>()
    store.setListingAction { [queue] in
      guard addedLater.entries.count < 20_000 else { return }
      for task in try await queue.enqueue(contentsOf: (0..<1_000).map { Note("new \($0)") }) {
        addedLater.add(task.id)
      }
    }
    #expect(try await queue.cancelAll() == 2_500)
    store.setListingAction(nil)
    for task in [tasks[0], tasks[2_499]] { #expect(try await task.outcome() == .cancelled) }
    let left = try await queue.tasks(limit: .max).map(\.id)
    #expect(left == addedLater.entries)
    #expect(!left.isEmpty)
  }

  @Test
  func `cancelling all tasks includes IDs of any date, even if other tasks are constantly added`()
    async throws
  {
    let later = Date().addingTimeInterval(400 * 86_400)
    var generator = TaskIDGenerator(.seeded(3))
    let ids =
      [TaskID(high: 0, low: 0), TaskID(high: .max, low: .max), TaskID(high: .max, low: 3)]
      + (0..<1_500).map { _ in generator.next(at: later) }
    let records = ids.map { id in
      TaskRecord(
        id: id,
        name: "Note",
        payload: StoredPayload([], format: .binary),
        createdDate: .seconds(0),
        availableDate: .seconds(0)
      )
    }
    _ = try await store.apply(records.map { .insert($0, onDuplicate: .keep) }, durability: .durable)
    #expect(try await queue.cancelAll() == ids.count)
    // Without these last two IDs, the call has to search for the greatest ID.
    let some = records.filter { $0.id.high < .max }
    _ = try await store.apply(some.map { .insert($0, onDuplicate: .keep) }, durability: .durable)
    store.setListingAction { [queue] in
      guard try await queue.count < 10_000 else { return }
      try await queue.enqueue(contentsOf: (0..<1_000).map { Note("new \($0)") })
    }
    try await queue.cancelAll()
    store.setListingAction(nil)
    #expect(try await queue.count(matching: TaskFilter(ids: Set(ids))) == 0)
  }

  @Test func `many tasks are changed in batches`() async throws {
    try await queue.enqueue(
      contentsOf: (0..<5_000).map { Note("\($0)") },
      options: TaskOptions(tags: ["all"])
    )
    let count = store.batches.entries.count
    #expect(try await queue.retry(matching: TaskFilter(tags: ["all"])) == 5_000)
    #expect(try await queue.reschedule(matching: .unfinished, to: .distantFuture) == 5_000)
    #expect(try await queue.remove(matching: TaskFilter()) == 5_000)
    #expect(store.batches.entries[count...].max() == 500)
    #expect(try await queue.count(matching: TaskFilter()) == 0)
  }

  @Test
  func `without a limit, all existing tasks are listed, even if others are constantly added`()
    async throws
  {
    let tasks = try await queue.enqueue(contentsOf: (0..<2_500).map { Note("\($0)") })
    store.setListingAction { [queue] in
      guard try await queue.count < 20_000 else { return }
      try await queue.enqueue(contentsOf: (0..<1_000).map { Note("new \($0)") })
    }
    #expect(try await queue.tasks().map(\.id) == tasks.map(\.id))
    store.setListingAction(nil)
    #expect(try await queue.tasks(limit: 2_000).map(\.id) == tasks.prefix(2_000).map(\.id))
    let rest = try await queue.tasks(after: tasks[2_498].id)
    #expect(try await rest.count == queue.count - 2_499)
    #expect(rest.first?.id == tasks[2_499].id)
  }

  /// A store that returns at most ten tasks, whatever the limit.
  private struct TersePages: ForwardingStore {
    let base: any Persistence = InMemoryStore()

    func tasks(
      matching filter: TaskFilter,
      after id: TaskID?,
      limit: Int,
      newestFirst: Bool
    ) async throws -> [TaskRecord] {
      try await base.tasks(matching: filter, after: id, limit: min(limit, 10))
    }
  }

  @Test func `a page shorter than its limit isn't assumed to be the last`() async throws {
    let queue = TaskQueue(persistence: TersePages())
    let tasks = try await queue.enqueue(contentsOf: (0..<35).map { Note("\($0)") })
    #expect(try await queue.tasks().map(\.id) == tasks.map(\.id))
    #expect(try await queue.cancelAll() == 35)
  }
}
