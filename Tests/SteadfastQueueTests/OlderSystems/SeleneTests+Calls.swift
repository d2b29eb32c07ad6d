import Foundation
import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

extension SeleneTests {
  // MARK: Calls

  @Test func `a call during a pass joins the pass, and returns its result`() async throws {
    let scheduler = scheduler()
    await register("a", with: scheduler, expected: 10, result: .newData)
    async let first = scheduler.run(within: .seconds(30))
    try await clock.sleep(for: .seconds(5))
    async let second = scheduler.run(within: .seconds(1))
    #expect(try await [first, second] == [.newData, .newData])
    #expect(log.entries == ["a"])
    #expect(clock.now.offset == .seconds(10))
  }

  @Test func `a cancelled pass throws, and calls that joined the pass return its result so far`()
    async throws
  {
    let scheduler = scheduler()
    await register("quick", with: scheduler, expected: 1, result: .newData)
    await register("slow", with: scheduler, expected: 20)
    let first = Task(executorPreference: time.executor) {
      try await scheduler.run(within: .seconds(30))
    }
    try await clock.sleep(for: .seconds(5))
    async let second = scheduler.run(within: .seconds(30))
    try await clock.sleep(for: .seconds(5))
    first.cancel()
    await #expect(throws: CancellationError.self) { try await first.value }
    #expect(try await second == .newData)
    #expect(clock.now.offset == .seconds(10))
    // The duration of a task that was cancelled is not recorded.
    let averages = try await scheduler.status.map { [$0.name: $0.averageDuration] }
    #expect(averages.contains(["slow": .seconds(20)]))
  }

  @Test func `cancelling a call that joined a pass does not cancel the pass`() async throws {
    let scheduler = scheduler()
    await register("a", with: scheduler, expected: 10)
    async let first = scheduler.run(within: .seconds(30))
    try await clock.sleep(for: .seconds(1))
    let second = Task(executorPreference: time.executor) {
      try await scheduler.run(within: .seconds(30))
    }
    try await clock.sleep(for: .seconds(1))
    second.cancel()
    await #expect(throws: CancellationError.self) { try await second.value }
    #expect(clock.now.offset == .seconds(2))
    #expect(try await first == .noData)
    #expect(log.entries == ["a"])
  }

  @Test func `a pass within the minimum interval runs nothing, also after a restart`()
    async throws
  {
    let store = InMemoryStore()
    let first = scheduler(store, minimumInterval: .seconds(300))
    await register("a", with: first)
    _ = try await first.run(within: .seconds(30))
    clock.advance(by: .seconds(298))
    let second = scheduler(store, minimumInterval: .seconds(300))
    await register("a", with: second)
    #expect(try await second.run(within: .seconds(30)) == .noData)
    #expect(log.entries == ["a"])
    clock.advance(by: .seconds(1))
    _ = try await second.run(within: .seconds(30))
    #expect(log.entries == ["a", "a"])
  }

  @Test func `a single task can be run at once, regardless of its rank`() async throws {
    let scheduler = scheduler(minimumInterval: .seconds(300))
    await register("high", with: scheduler, .veryHigh, expected: 10)
    await register("low", with: scheduler, .veryLow, result: .newData)
    async let pass = scheduler.run(within: .seconds(10))
    try await clock.sleep(for: .seconds(5))
    #expect(try await scheduler.run("low", within: .seconds(30)) == .newData)
    #expect(try await pass == .noData)
    #expect(log.entries == ["high", "low"])
    let error = await queueError { try await scheduler.run("none", within: .seconds(1)) }
    #expect(error?.code == .unknownTask)
  }

  @Test func `a reset waits for the pass, and clears the history`() async throws {
    let scheduler = scheduler()
    await register("a", with: scheduler, expected: 9, takes: 5)
    async let pass = scheduler.run(within: .seconds(30))
    try await clock.sleep(for: .seconds(1))
    try await scheduler.reset()
    #expect(clock.now.offset == .seconds(5))
    #expect(try await pass == .noData)
    let status = try await scheduler.status[0]
    #expect(status.lastRunDate == nil)
    #expect(status.averageDuration == .seconds(9))
  }

  @Test func `if the store fails, no task runs, and calls that joined the pass throw too`()
    async throws
  {
    let store = FaultInjectingStore()
    let scheduler = scheduler(store)
    await register("a", with: scheduler)
    store.inject(.hang) { $0.kind == .apply }
    store.inject(.error(Broken())) { $0.kind == .apply }
    let first = Task(executorPreference: time.executor) {
      try await scheduler.run(within: .seconds(30))
    }
    try await store.waitForHeldCalls()
    let second = Task(executorPreference: time.executor) {
      try await scheduler.run(within: .seconds(30))
    }
    try await clock.sleep(for: .seconds(1))
    store.letGo()
    await #expect(throws: Broken.self) { try await first.value }
    await #expect(throws: Broken.self) { try await second.value }
    #expect(log.entries == [])
    #expect(try await scheduler.run(within: .seconds(30)) == .noData)
  }
}

private struct Broken: Error {}
