import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

/// Tests that callers that are woken together continue in a deterministic order in virtual time.
@Suite(.virtualTime) struct WakingOrderTests {
  private let clock: VirtualClock
  private let log = Log<String>()
  private let keys = (10..<40).map { "key \($0)" }

  init() throws { clock = try #require(VirtualTime.current).clock }

  /// Locks all keys, makes one caller wait for each key, and then ends the waits with the closure.
  private func waitForAllKeys(
    of turns: KeyedMutex,
    thenEndWaits end: (inout TaskGroup<Void>) async throws -> Void
  ) async throws {
    try await turns.lock(Set(keys))
    await withTaskGroup { group in
      for key in keys {
        group.addTask { [log] in
          do {
            try await turns.lock([key])
            turns.unlock([key])
          } catch {}
          log.add(key)
        }
      }
      try? await clock.sleep(for: .seconds(1))
      try? await end(&group)
    }
  }

  @Test func `unlocking several keys wakes callers in the order of the keys`()
    async throws
  {
    let turns = KeyedMutex(StoreAvailability())
    try await waitForAllKeys(of: turns) { _ in turns.unlock(Set(keys)) }
    #expect(log.entries == keys)
  }

  @Test func `cancelled callers stop waiting in the order of their arrival`() async throws {
    let availability = StoreAvailability()
    let turns = KeyedMutex(availability)
    try await waitForAllKeys(of: turns) { group in
      group.cancelAll()
      await availability.markUnavailable { try? await clock.sleep(for: .seconds(1)) }
    }
    #expect(log.entries == keys)
  }

  @Test func `shutting down a queue wakes callers in the order of their tasks`() async throws {
    let queue = TaskQueue(clock: clock)
    await withDiscardingTaskGroup { group in
      for key in keys {
        guard let task = try? await queue.enqueue(Note(key), delay: .seconds(60)) else { continue }
        group.addTask { [log] in
          _ = try? await task.outcome()
          log.add(key)
        }
      }
      try? await clock.sleep(for: .seconds(1))
      await queue.shutDown()
    }
    #expect(log.entries == keys)
  }
}
