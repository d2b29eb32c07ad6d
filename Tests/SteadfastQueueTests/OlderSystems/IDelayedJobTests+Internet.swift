import Foundation
import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

/// Tests jobs that wait for the internet, for a host, or for the app to be active.
extension IDelayedJobTests {
  @Test(arguments: StoreKind.allCases)
  func `only jobs that need the internet wait for it`(
    kind: StoreKind
  ) async throws {
    try await kind.withStore { store in
      let queue = await workingQueue(store)
      let needsInternet = TaskOptions(conditions: [.network])
      try await withRunning(queue) {
        let job = try await queue.enqueue(Note("internet"), options: needsInternet)
        try await queue.enqueue(Note("local"))
        await queue.setCondition(.network, holds: false)
        try await clock.sleep(for: .seconds(3600))
        #expect(log.entries == ["0 local"])
        await queue.setCondition(.network, holds: true)
        #expect(try await job.outcome() == .succeeded)
      }
      #expect(log.entries == ["0 local", "3600 internet"])
    }
  }

  @Test func `jobs wait while a named host can't be reached, or the app is not active`()
    async throws
  {
    let queue = await workingQueue()
    let options = TaskOptions(conditions: ["api.example.com", "active"])
    let (reachability, host) = AsyncStream<Bool>.makeStream()
    await queue.register(Reachability(values: { reachability }), for: "api.example.com")
    host.yield(false)
    try await withRunning(queue) {
      let job = try await queue.enqueue(Note("job"), options: options)
      await queue.setCondition("active", holds: true)
      try await clock.sleep(for: .seconds(1))
      host.yield(true)
      #expect(try await job.outcome() == .succeeded)
      // The app is no longer active.
      await queue.setCondition("active", holds: false)
      let second = try await queue.enqueue(Note("job 2"), options: options)
      try await queue.waitUntilIdle()
      #expect(try await second.record()?.state == .waiting)
    }
    #expect(log.entries == ["1 job"])
  }
}

/// Monitors whether a host can be reached.
private struct Reachability: ConditionMonitor {
  let stream: @Sendable () -> AsyncStream<Bool>

  init(values: @escaping @Sendable () -> AsyncStream<Bool>) { stream = values }

  func values() -> AsyncStream<Bool> { stream() }
}
