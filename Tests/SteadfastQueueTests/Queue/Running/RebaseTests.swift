import Foundation
import SteadfastTesting
import Testing

@testable import SteadfastQueue

@Suite struct RebaseTests {
  @Test func `a queue moves dates back after its store recovers`() async throws {
    let (store, clock) = (FaultInjectingStore(InMemoryStore()), VirtualClock())
    let queue = TaskQueue(persistence: store, clock: clock)
    await queue.register(Note.self) { _, _ in throw Refusal() }
    let task = try await queue.enqueue(Note("a"))
    try await queue.runAvailable()
    let before = try #require(try await task.record()?.failedDate)
    clock.setDate(clock.date - 3600)
    store.inject(.error(Refusal())) { $0.changes.contains("rebase") }
    await #expect(throws: TaskQueueError.self) { try await queue.runAvailable() }
    #expect(try await task.record()?.failedDate == before)
    try await queue.runAvailable()
    #expect(try await task.record()?.failedDate == before - 3600)
  }

  /// The attempt ends before any claim detects the new date.
  @Test(arguments: [false, true])
  func `setting the clock back during an attempt delays neither its retry nor its sleep`(
    sleeps: Bool
  ) async throws {
    let clock = VirtualClock()
    let queue = TaskQueue(
      configuration: TaskQueueConfiguration(backoff: .constant(.seconds(5))),
      clock: clock
    )
    await queue.register(Note.self) { _, context in
      clock.setDate(clock.date - 3600)
      if sleeps { try await context.sleep("nap", for: .seconds(5)) }
      throw Refusal()
    }
    let task = try await queue.enqueue(Note("a"))
    try await queue.runAvailable()
    #expect(try await task.record()?.availableDate == clock.date + 5)
  }
}
