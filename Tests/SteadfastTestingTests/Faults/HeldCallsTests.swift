import Testing

@testable import SteadfastTesting

@Suite(.virtualTime) struct HeldCallsTests {
  private let clock: VirtualClock
  private let calls = HeldCalls()

  init() throws { clock = try #require(VirtualTime.current).clock }

  @Test func `a call does not hang if the store is restored just before the call would hang`()
    async
  {
    await calls.hold { true }
    #expect(calls.letGo() == 0)
  }

  @Test func `a call that hangs later does not resume a wait that was cancelled`() async throws {
    try await withThrowingTaskGroup(of: Void.self) { group in
      group.addTask { try await calls.wait(for: 1) }
      // The other task is waiting by the time this sleep ends.
      try await clock.sleep(for: .seconds(1))
      group.cancelAll()
      await #expect(throws: CancellationError.self) { try await group.waitForAll() }
    }
    async let held: Void = calls.hold { false }
    try await calls.wait(for: 1)
    #expect(calls.letGo() == 1)
    await held
  }
}
