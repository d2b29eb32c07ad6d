#if os(Linux)
import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastRetry

/// Tests that timeouts and delays on the system's clock free their memory when they end early.
///
/// Each test measures the memory in a separate process.
@Suite(.timeLimit(.minutes(5))) struct HeldMemoryTests {
  @Test
  func `100,000 operations that end long before their timeouts of an hour retain less than 5 MB`()
    async
  {
    await #expect(processExitsWith: .success) {
      let growth = try await memoryGrowth {
        for _ in 0..<100_000 { try await withTimeout(.seconds(3_600)) { await Task.yield() } }
      }
      #expect(growth < 5_000_000)
    }
  }

  @Test func `20,000 cancelled delays of an hour retain less than 5 MB`() async {
    await #expect(processExitsWith: .success) {
      // Warms up, so that the measurement does not include one-time allocations.
      try await startAndCancelDelays(count: 1_000)
      let growth = try await leastMemoryGrowth(inRounds: 4) {
        try await startAndCancelDelays(count: 20_000)
      }
      #expect(growth < 5_000_000)
    }
  }

  @Test func `a delay too long for the system's clocks does not trap`() async {
    await #expect(processExitsWith: .success) {
      await withTaskGroup(of: Void.self) { group in
        for delay in [Duration(attoseconds: .max), .seconds(Int64.max), .seconds(Int64(1) << 33)] {
          group.addTask { try? await ContinuousClock().wait(for: delay) }
          group.addTask { try? await SuspendingClock().wait(for: delay) }
          group.addTask { try? await VirtualClock().wait(for: delay) }
          group.addTask {
            try? await withTimeout(delay) { try await ContinuousClock().wait(for: delay) }
          }
        }
        // For each delay, there are two sleeps on the continuous clock and one timeout.
        while SharedTimer.of(ContinuousClock())?.count != 9 { await Task.yield() }
        group.cancelAll()
      }
    }
  }
}

/// Starts delays of an hour, and cancels each of them.
private func startAndCancelDelays(count: Int) async throws {
  let policy = RetryPolicy.attempts(2, backoff: .constant(.seconds(3_600)))
  for _ in 0..<count {
    try await withThrowingTaskGroup(of: Void.self) { group in
      group.addTask { try? await withRetry(policy) { throw Offline() } }
      group.addTask { for await _ in BackoffSequence(policy) {} }
      while SharedTimer.of(ContinuousClock())?.count != 2 { await Task.yield() }
      group.cancelAll()
      try await group.waitForAll()
    }
  }
}
#endif
