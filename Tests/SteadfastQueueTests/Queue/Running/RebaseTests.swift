import Foundation
import SteadfastTesting
import Testing

@testable import SteadfastQueue

@Suite struct RebaseTests {
  @Test func `a queue moves dates back when its store works again`() async throws {
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
}
