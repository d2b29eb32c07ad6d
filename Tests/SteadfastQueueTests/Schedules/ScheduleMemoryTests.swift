#if os(Linux)
import Foundation
import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

/// What many schedules cost.
@Suite(.virtualTime, .serialized) struct ScheduleMemoryTests {
  private let clock: VirtualClock

  init() throws { clock = try #require(VirtualTime.current).clock }

  private func schedule(_ count: Int, on queue: TaskQueue) async throws {
    let rule = try ScheduleRule.daily(at: .time(2, 30), in: .gmt)
    for index in 0..<count { try await queue.schedule("schedule \(index)", rule, Note("a")) }
  }

  @Test func `a schedule takes at most 500 bytes beside its occurrence`() async throws {
    let count = 4_000
    // What is made once is made before, and so is room for as many tasks.
    let warm = TaskQueue(persistence: InMemoryStore(), clock: clock)
    try await schedule(100, on: warm)
    let tasks = TaskQueue(persistence: InMemoryStore(), clock: clock)
    let plain = try await memoryGrowth {
      for _ in 0..<count {
        let payload = StoredPayload(Array(#"{"text":"a"}"#.utf8), format: .json)
        let date = clock.date + 86_400
        let record = TaskRecord(
          id: tasks.generators.nextID(at: clock.date),
          name: "Note",
          payload: payload,
          createdDate: clock.date,
          availableDate: date
        )
        _ = try await tasks.store.apply([.insert(record, onDuplicate: .keep)], durability: .durable)
      }
    }
    let queue = TaskQueue(persistence: InMemoryStore(), clock: clock)
    let scheduled = try await memoryGrowth { try await schedule(count, on: queue) }
    let each = (scheduled - plain) / count
    #expect(each <= 500, "\(each) bytes each; with its occurrence \(scheduled / count)")
    #expect(try await queue.schedules().count == count)
    withExtendedLifetime((warm, tasks, queue)) {}
  }

  @Test func `many schedules wait with one sleep`() async throws {
    func sleeps(_ count: Int) async throws -> Int {
      let queue = TaskQueue(persistence: InMemoryStore(), clock: clock)
      await queue.register(Note.self) { _, _ in }
      try await schedule(count, on: queue)
      return try await withRunning(queue) {
        try await clock.sleep(for: .seconds(1))
        return clock.pendingSleeps.count
      }
    }
    #expect(try await sleeps(500) == sleeps(1))
  }
}
#endif
