import Foundation
import SteadfastTesting
import Testing

@testable import SteadfastQueue

/// Tests that many schedules need few sleeps.
@Suite(.virtualTime) struct ScheduleTimerTests {
  private let clock: VirtualClock

  init() throws { clock = try #require(VirtualTime.current).clock }

  private func schedule(_ count: Int, on queue: TaskQueue) async throws {
    let rule = try ScheduleRule.daily(at: .time(2, 30), in: .gmt)
    for index in 0..<count { try await queue.schedule("schedule \(index)", rule, Note("a")) }
  }

  @Test func `many schedules need as many sleeps as one schedule`() async throws {
    func sleepCount(schedules count: Int) async throws -> Int {
      let queue = TaskQueue(persistence: InMemoryStore(), clock: clock)
      await queue.register(Note.self) { _, _ in }
      try await schedule(count, on: queue)
      return try await withRunning(queue) {
        try await clock.sleep(for: .seconds(1))
        return clock.pendingSleeps.count
      }
    }
    #expect(try await sleepCount(schedules: 100) == sleepCount(schedules: 1))
  }
}
