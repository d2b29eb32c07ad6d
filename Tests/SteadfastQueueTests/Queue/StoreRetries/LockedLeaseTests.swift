import Foundation
import SteadfastTesting
import Synchronization
import TestSupport
import Testing

@testable import SteadfastQueue

/// Tests a task whose lease can't be extended, as when another transaction has locked its row.
@Suite(.virtualTime) struct LockedLeaseTests {
  private let clock: VirtualClock
  private let store = SharedStore(
    StoreSharing(leaseDuration: .seconds(60), pollInterval: .seconds(5))
  )
  private let log = Log<String>()

  init() throws { clock = try #require(VirtualTime.current).clock }

  private func makeQueue(named name: String, on store: some Persistence) async -> TaskQueue {
    let queue = TaskQueue(
      persistence: store,
      configuration: TaskQueueConfiguration(maxConcurrentTasks: 2),
      clock: clock
    )
    await queue.register(Note.self) { [clock, log] note, context in
      log.add("\(name) begins \(note.text) (\(context.interruptionCount))")
      try await clock.sleep(for: .seconds(Int(note.text) ?? 0))
    }
    return queue
  }

  @Test func `a lease that can't be extended doesn't prevent the extension of later leases`()
    async throws
  {
    let locked = Mutex<TaskID?>(nil)
    let faulty = FaultInjectingStore(store.process())
    faulty.inject(.transientError, .afterEffect, times: nil) { call in
      call.changes.contains { change in
        guard case .extend(let lease, _) = change else { return false }
        return lease.id == locked.withLock { $0 }
      }
    }
    let a = await makeQueue(named: "a", on: faulty)
    let b = await makeQueue(named: "b", on: store.process())
    let first = try await a.enqueue(Note("300"))
    locked.withLock { $0 = first.id }
    try await withRunning(a) {
      // After 30 s, extending the first task's lease has failed repeatedly.
      try await clock.sleep(for: .seconds(30))
      let second = try await a.enqueue(Note("200"))
      try await clock.sleep(for: .seconds(1))
      try await withRunning(b) { _ = try await second.outcome() }
    }
    #expect(log.entries == ["a begins 300 (0)", "a begins 200 (0)"])
  }
}
