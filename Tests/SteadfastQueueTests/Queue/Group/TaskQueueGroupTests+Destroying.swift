import Foundation
import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

/// The end of a group, with all of its tasks.
extension TaskQueueGroupTests {
  @Test func `a handler that destroys its group gets the error that it would wait for itself`()
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

  @Test func `a group is not destroyed under its handlers when the caller is cancelled`()
    async throws
  {
    let group = group()
    let queue = try await group.addQueue("a")
    await queue.register(Note.self) { [time, clock, log] _, _ in
      log.add("begins")
      // A task of its own, which no cancellation reaches: the handler takes notice of it late.
      await Task(executorPreference: time.executor) { try? await clock.sleep(for: .seconds(9)) }
        .value
      log.add("ends")
      try Task.checkCancellation()
    }
    try await queue.enqueue(Note("1"))
    let run = start(group)
    try await clock.sleep(for: .seconds(1))
    // The test cancels it, and no other task.
    let destruction = Task(executorPreference: time.executor) { try await group.destroy() }
    destruction.cancel()
    await #expect(throws: CancellationError.self) { try await destruction.value }
    #expect(log.entries == ["begins"])
    try await run.value
    #expect(log.entries == ["begins", "ends"])
    #expect(try await group.count() == 1)
  }

  @Test func `a group is destroyed as a whole, and no queue alone`() async throws {
    let group = group()
    let queue = try await group.addQueue("a")
    try await group.enqueue(Note("1"), on: "a")
    let error = await queueError { try await queue.destroy() }
    #expect(error?.message.contains("'a'") == true)
    try await group.destroy()
    await #expect(throws: TaskQueueError.self) { try await group.count() }
  }
}
