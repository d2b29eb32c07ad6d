import Foundation
import SteadfastTesting
import Testing

@testable import SteadfastQueue

@Suite struct WallClockTests {
  /// How long a sleep of an hour lasts, in seconds, if the date is changed after 100 seconds.
  private func secondsSlept(steppingBy seconds: Double) async throws -> Double {
    try await withVirtualTime { time in
      let clock = time.clock
      let start = clock.now
      async let slept: Double = {
        try await clock.sleep(untilDate: clock.date + 3600)
        return start.duration(to: clock.now) / .seconds(1)
      }()
      try await clock.sleep(for: .seconds(100))
      clock.setDate(clock.date + seconds)
      return try await slept
    }
  }

  @Test(arguments: [
    (0.0, 3600.0), (3600, 120), (86_400, 120), (1000, 2600), (-1000, 4600),
  ])
  func `a sleep until a date reacts within a minute to a clock that was set`(
    step: Double,
    seconds: Double
  ) async throws {
    #expect(try await secondsSlept(steppingBy: step) == seconds)
  }

  @Test(arguments: [0.0, -1, -1e9])
  func `sleeping until a date in the past returns at once`(seconds: Double) async throws {
    let clock = VirtualClock()
    try await clock.sleep(untilDate: clock.date + seconds)
    #expect(clock.now == VirtualClock.Instant(offset: .zero))
  }

  @Test func `cancellation ends a sleep, and a cancelled task doesn't start to sleep`() async throws
  {
    let clock = VirtualClock()
    try await withThrowingTaskGroup { group in
      group.addTask { try await clock.sleep(untilDate: clock.date + 60) }
      try await clock.waitForSleepers(count: 1)
      group.cancelAll()
      await #expect(throws: CancellationError.self) { try await group.waitForAll() }
    }
    await withTaskGroup(of: Void.self) { group in
      group.cancelAll()
      group.addTask {
        await #expect(throws: CancellationError.self) {
          try await clock.sleep(untilDate: clock.date - 1)
        }
      }
    }
  }
}
