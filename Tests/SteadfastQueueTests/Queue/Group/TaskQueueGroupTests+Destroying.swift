import Foundation
import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

/// Tests destroying a group, and calls of handlers that would wait for the handler's own attempt.
extension TaskQueueGroupTests {
  @Test func `a handler can't destroy its own group`()
    async throws
  {
    let store = InMemoryStore()
    let group = TaskQueueGroup(persistence: store, clock: clock)
    let queue = try await group.addQueue("a")
    await queue.register(Note.self) { [unowned group, log] _, _ in
      let error = await queueError { try await group.destroy() }
      #expect(error?.code == .waitsForItself)
      log.add("performed")
    }
    let task = try await queue.enqueue(Note("1"))
    try await withRunning(group) {
      let outcome = try await task.outcome()
      #expect(outcome == .succeeded)
    }
    #expect(log.entries == ["performed"])
  }

  @Test func `cancelling a call that destroys a group leaves its handlers running`()
    async throws
  {
    let group = makeGroup()
    let queue = try await group.addQueue("a")
    await queue.register(Note.self) { [time, clock, log] _, _ in
      log.add("begins")
      // An unstructured task isn't cancelled, so the handler ends long after its cancellation.
      await Task(executorPreference: time.executor) { try? await clock.sleep(for: .seconds(9)) }
        .value
      log.add("ends")
      try Task.checkCancellation()
    }
    try await queue.enqueue(Note("1"))
    let run = startRun(of: group)
    try await clock.sleep(for: .seconds(1))
    // An unstructured task, so that the test cancels only this call.
    let destruction = Task(executorPreference: time.executor) { try await group.destroy() }
    destruction.cancel()
    await #expect(throws: CancellationError.self) { try await destruction.value }
    #expect(log.entries == ["begins"])
    try await run.value
    #expect(log.entries == ["begins", "ends"])
    #expect(try await group.count() == 1)
  }

  @Test func `handlers of two queues that shut down their group don't wait for each other`()
    async throws
  {
    let group = TaskQueueGroup(clock: clock)
    for name in ["a", "b"] {
      let queue = try await group.addQueue(name)
      await queue.register(Note.self) { [unowned group, clock, log] note, _ in
        // After a second, both attempts are under way.
        try await clock.sleep(for: .seconds(1))
        await group.shutDown()
        log.add(note.text)
      }
      try await queue.enqueue(Note(name))
    }
    try await group.run()
    #expect(log.entries.sorted() == ["a", "b"])
    #expect(try await group.count() == 0)
  }

  @Test func `a handler can't wait until its own group is idle`()
    async throws
  {
    let group = TaskQueueGroup(clock: clock)
    let (a, b) = (try await group.addQueue("a"), try await group.addQueue("b"))
    await a.register(name: "Outer") { [unowned b] _, _ in
      let outcome = try await b.enqueue(Note("1")).outcome()
      #expect(outcome == .succeeded)
    }
    await b.register(Note.self) { [unowned group] _, _ in
      let error = await queueError { try await group.waitUntilIdle() }
      #expect(error?.code == .waitsForItself)
    }
    let task = try await a.enqueue(name: "Outer")
    try await withRunning(group) {
      let outcome = try await task.outcome()
      #expect(outcome == .succeeded)
    }
  }

  @Test func `a group can be destroyed, but a single queue of the group can't`() async throws {
    let group = makeGroup()
    let queue = try await group.addQueue("a")
    try await group.enqueue(Note("1"), on: "a")
    let error = await queueError { try await queue.destroy() }
    #expect(error?.code == .invalidArgument)
    #expect(error?.message.contains("'a'") == true)
    // The queue remains usable.
    #expect(try await group.runAvailable() == 1)
    #expect(log.entries == ["a begins 1", "a 1"])
    try await group.destroy()
    await #expect(throws: TaskQueueError.self) { try await group.count() }
  }
}
