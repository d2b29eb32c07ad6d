import Foundation
import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

/// Tests commands for running tasks of a group's queues.
extension TaskQueueGroupTests {
  private var all: TaskFilter { TaskFilter(queue: nil) }

  @Test(arguments: StoreKind.allCases)
  func `a queue cancels its running tasks, and other queues' running tasks if the filter matches`(
    kind: StoreKind
  ) async throws {
    try await kind.withStore { store in
      let group = makeGroup(on: store)
      let (a, b) = (try await group.addQueue("a"), try await group.addQueue("b"))
      let c = try await group.addQueue("default")
      var tasks: [EnqueuedTask] = []
      for queue in [a, b, c] { tasks.append(try await queue.enqueue(Note("1"))) }
      try await withRunning(group) {
        try await clock.sleep(for: .seconds(1))
        #expect(try await a.cancelAll() == 1)
        #expect(try await tasks[0].outcome() == .cancelled)
        #expect(try await group.count() == 2)
        #expect(try await a.cancel(matching: all) == 2)
        for task in tasks {
          let outcome = try await task.outcome()
          #expect(outcome == .cancelled)
        }
      }
      #expect(log.entries.sorted() == ["a begins 1", "b begins 1", "default begins 1"])
      #expect(try await group.count() == 0)
    }
  }

  /// Performs the body with queue "a" of a group while queue "b" performs a task.
  private func withTaskUnderWay(
    _ body: (TaskQueueGroup, TaskQueue) async throws -> Void
  ) async throws {
    let group = makeGroup()
    let (a, b) = (try await group.addQueue("a"), try await group.addQueue("b"))
    try await b.enqueue(Note("1"))
    try await withRunning(group) {
      try await clock.sleep(for: .seconds(1))
      try await body(group, a)
    }
  }

  @Test func `a filter for all queues restarts and removes running tasks of another queue`()
    async throws
  {
    try await withTaskUnderWay { group, a in
      #expect(try await a.retry(matching: all) == 1)
      try await clock.sleep(for: .seconds(1))
      #expect(log.entries == ["b begins 1", "b begins 1"])
      #expect(try await a.remove(matching: all) == 1)
      try await group.waitUntilIdle()
      #expect(try await group.count(matching: all) == 0)
    }
    #expect(log.entries == ["b begins 1", "b begins 1"])
  }

  @Test func `a filter that doesn't match another queue's running task doesn't affect that task`()
    async throws
  {
    try await withTaskUnderWay { group, a in
      #expect(try await a.cancel(matching: TaskFilter(queue: nil, states: [.waiting])) == 0)
      #expect(try await a.performNow(matching: all) == 0)
      try await group.waitUntilIdle()
    }
    #expect(log.entries == ["b begins 1", "b 1"])
  }

  @Test func `a handler that cancels its task through another queue is cancelled at once`()
    async throws
  {
    let group = TaskQueueGroup(clock: clock)
    let (a, b) = (try await group.addQueue("a"), try await group.addQueue("b"))
    await b.register(Note.self) { [unowned a] _, _ in
      let count = try await a.cancel(matching: TaskFilter(queue: nil))
      #expect(count == 1)
      try Task.checkCancellation()
      Issue.record("the attempt wasn't cancelled")
    }
    let task = try await b.enqueue(Note("1"))
    try await withRunning(group) {
      let outcome = try await task.outcome()
      #expect(outcome == .cancelled)
    }
  }

  @Test func `all tasks of all queues are returned, even if there are many`() async throws {
    let group = makeGroup()
    for name in ["a", "b", "default"] {
      let queue = try await group.addQueue(name)
      try await queue.enqueue(contentsOf: (1...600).map { Note("\($0)") })
    }
    let all = try await group.tasks()
    #expect(all.count == 1_800 && all.map(\.id) == all.map(\.id).sorted())
    #expect(try await group.tasks(matching: TaskFilter(queue: "default")).count == 600)
    #expect(try await group.tasks(after: all[1_000].id).map(\.id) == all[1_001...].map(\.id))
    #expect(try await group.tasks(limit: 3).map(\.id) == all.prefix(3).map(\.id))
    #expect(try await group.tasks(limit: -1).isEmpty)
  }
}
