import Foundation
import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

/// What a queue asks of its store while it has nothing to do.
@Suite(.virtualTime) struct IdleStoreTests {
  private struct Call {
    let kind: FaultInjectingStore.Call.Kind
    /// When it was made.
    let offset: Duration
  }

  /// The calls in a day without work, half an hour after a task.
  private func calls(of base: any Persistence) async throws -> [Call] {
    let clock = try VirtualTime.required.clock
    let calls = Log<Call>()
    let store = FaultInjectingStore(base)
    store.inject(.hang, times: nil) { call in
      calls.add(Call(kind: call.kind, offset: clock.now.offset))
      return false
    }
    let queue = TaskQueue(persistence: store, clock: clock)
    await queue.register(Note.self) { _, _ in }
    return try await withRunning(queue) {
      try await queue.enqueue(Note("a"))
      try await queue.waitUntilIdle()
      // After what follows the end of a task, and between two looks.
      try await clock.sleep(for: .seconds(1801))
      let count = calls.entries.count
      try await clock.sleep(for: .seconds(24 * 3600))
      return Array(calls.entries.dropFirst(count))
    }
  }

  @Test func `a queue that waits asks a store of its own nothing`() async throws {
    let calls = try await calls(of: InMemoryStore())
    #expect(calls.isEmpty, "\(calls)")
  }

  @Test func `a queue that waits asks a shared store only when it looks for the tasks of others`()
    async throws
  {
    let interval = Duration.seconds(600)
    let shared = SharedStore(StoreSharing(leaseDuration: .seconds(60), pollInterval: interval))
    let calls = try await calls(of: shared.process())
    let looks = Dictionary(grouping: calls, by: \.offset)
    #expect(looks.count == 24 * 6)
    // It looks for tasks and whether it is paused; and once an hour for its schedules.
    for look in looks.values {
      #expect(look.count { $0.kind == .claim } == 1)
      #expect((1...2).contains(look.count { $0.kind == .value }))
      #expect(look.count <= 3, "\(look)")
    }
    #expect(calls.count <= 24 * (6 * 2 + 1))
  }
}
