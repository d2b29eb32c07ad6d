import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

/// Tests that a group calls its queues in the order of their names, so that it is deterministic.
extension TaskQueueGroupTests {
  private static let names = ["a", "b", "c", "d", "e", "f", "g", "h"]

  /// A call that affects all queues of a group.
  enum Call: CaseIterable { case run, runAvailable, runWithin, shutDown }

  /// Makes a group whose queues were added in reverse order of their names.
  private func makeGroupOfManyQueues() async throws -> TaskQueueGroup {
    let group = makeGroup()
    for name in Self.names.reversed() { try await group.addQueue(name) }
    return group
  }

  @Test(arguments: Call.allCases)
  func `a group calls its queues in the order of their names`(call: Call) async throws {
    let group = try await makeGroupOfManyQueues()
    for name in Self.names { try await group.enqueue(Note("1"), on: name) }
    switch call {
    case .run: try await withRunning(group) { try await group.waitUntilIdle() }
    case .runAvailable: #expect(try await group.runAvailable() == Self.names.count)
    case .runWithin: #expect(try await group.run(within: .seconds(60)) == Self.names.count)
    case .shutDown:
      await withDiscardingTaskGroup { tasks in
        for queue in group.queues {
          let events = queue.events
          tasks.addTask { [log] in
            for await _ in events {}
            log.add("\(queue.name) begins 1")
          }
        }
        try? await clock.sleep(for: .seconds(1))
        group.beginShutDown()
      }
    }
    #expect(log.entries.filter { $0.contains("begins") } == Self.names.map { "\($0) begins 1" })
  }

  @Test func `queues are notified in the order of their names of changes by another queue`()
    async throws
  {
    let group = try await makeGroupOfManyQueues()
    await withDiscardingTaskGroup { tasks in
      for name in Self.names.reversed() {
        tasks.addTask { [log] in
          let task = try? await group.enqueue(Note(name), on: name)
          if (try? await task?.outcome()) == .cancelled { log.add(name) }
        }
      }
      try? await clock.sleep(for: .seconds(1))
      _ = try? await group.queues[0].cancel(matching: TaskFilter(queue: nil))
    }
    #expect(log.entries == Self.names)
  }
}
