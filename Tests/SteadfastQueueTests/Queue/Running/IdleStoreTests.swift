import Foundation
import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

/// Tests how often an idle queue calls its store.
@Suite(.virtualTime) struct IdleStoreTests {
  private struct Call {
    let kind: FaultInjectingStore.Call.Kind
    /// The time since the start of the test.
    let offset: Duration
  }

  /// Returns the calls of a day without tasks, from half an hour after the last task.
  private func callsDuringIdleDay(to base: any Persistence) async throws -> [Call] {
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
      // This sleep skips the calls that follow the end of a task, and ends between two polls.
      try await clock.sleep(for: .seconds(1801))
      let count = calls.entries.count
      try await clock.sleep(for: .seconds(24 * 3600))
      return Array(calls.entries.dropFirst(count))
    }
  }

  @Test func `an idle queue doesn't call a store that it doesn't share`() async throws {
    let calls = try await callsDuringIdleDay(to: InMemoryStore())
    #expect(calls.isEmpty, "\(calls)")
  }

  @Test func `an idle queue calls a shared store only to poll for tasks of other processes`()
    async throws
  {
    let interval = Duration.seconds(600)
    let shared = SharedStore(StoreSharing(leaseDuration: .seconds(60), pollInterval: interval))
    let calls = try await callsDuringIdleDay(to: shared.process())
    let polls = Dictionary(grouping: calls, by: \.offset)
    #expect(polls.count == 24 * 6)
    // Each poll claims tasks, reads the stored pause and the schedules, and looks for tasks that an
    // older version of the program has parked.
    for poll in polls.values {
      #expect(poll.count { $0.kind == .claim } == 1)
      #expect(poll.count { $0.kind == .value } == 2)
      #expect(poll.count { $0.kind == .contains } == 1)
      #expect(poll.count <= 4, "\(poll)")
    }
    #expect(calls.count <= 24 * 6 * 4)
  }
}
