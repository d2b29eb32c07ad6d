import Foundation
import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

/// Tests schedules that one process parks, and another process continues.
@Suite(.virtualTime) struct ParkedScheduleTests {
  let bench: ScheduleBench

  init() throws { bench = try ScheduleBench() }

  /// Parks a schedule, like a process that doesn't support its time zone.
  private func parkSchedule(in store: some Persistence) async throws {
    let key = ScheduleKey("s")
    let bytes = try #require(try await store.value(named: key.valueName))
    var schedule = try StoredSchedule(bytes, key)
    let id = try #require(schedule.id)
    schedule.park(because: "it has no zones")
    let changes = [
      TaskChange.cancel(.unclaimed(id), at: bench.clock.date, retains: false),
      .setValue(named: key.valueName, from: bytes, to: try schedule.bytes),
    ]
    let outcomes = try await store.apply(changes, durability: .durable)
    #expect(outcomes.allSatisfy { $0 == .done })
  }

  @Test func `a running queue continues a parked schedule within a minute`() async throws {
    let shared = SharedStore(
      StoreSharing(leaseDuration: .seconds(600), pollInterval: .seconds(60))
    )
    let queue = await bench.makeQueue(on: shared.process())
    try await queue.schedule("s", .hours, Note("a"))
    try await withRunning(queue) {
      try await bench.advance(hours: 1.25)
      try await parkSchedule(in: shared.process())
      #expect(try await queue.schedules().map(\.parkedReason) == ["it has no zones"])
      try await bench.advance(hours: 0.05)
      #expect(try await queue.schedules().map(\.parkedReason) == [nil])
      try await bench.advance(hours: 1.95)
      #expect(try await queue.schedules().map(\.parkedReason) == [nil])
    }
    #expect(bench.log.entries.map(\.date) == [1, 2, 3])
    #expect(bench.log.entries.last?.now == 3)
  }

  @Test func `each run of a queue continues parked schedules`() async throws {
    let store = InMemoryStore()
    let queue = await bench.makeQueue(on: store)
    try await queue.schedule("s", .hours, Note("a"))
    for hours in [1.25, 1] {
      try await withThrowingTaskGroup { group in
        group.addTask { try await queue.run() }
        try await bench.advance(hours: hours)
        group.cancelAll()
        _ = await group.nextResult()
      }
      if hours == 1.25 { try await parkSchedule(in: store) }
    }
    #expect(bench.log.entries.map(\.date) == [1, 2])
  }
}
