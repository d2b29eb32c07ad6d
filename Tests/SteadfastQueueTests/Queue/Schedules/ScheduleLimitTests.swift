import Foundation
import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

/// Tests schedules whose tasks have rate limits.
@Suite(.virtualTime) struct ScheduleLimitTests {
  let bench: ScheduleBench

  init() throws { bench = try ScheduleBench() }

  @Test(arguments: [false, true])
  func `a skipped occurrence doesn't count as a start`(hasKey: Bool) async throws {
    let limit =
      hasKey
      ? RateLimit.atMost(1, per: .seconds(3_600), of: Note.self, key: { $0.text })
      : .atMost(1, per: .seconds(3_600), of: Note.self)
    let store = InMemoryStore()
    let first = await bench.makeQueue(on: store)
    try await first.schedule("s", .hours, Note("a"))
    try await bench.advance(hours: 5.25)
    let queue = await bench.makeQueue(on: store, rateLimits: [limit])
    try await withRunning(queue) { try await bench.advance(hours: 1.5) }
    #expect(bench.log.entries.map(\.date) == [5, 6])
    #expect(bench.log.entries.map(\.now) == [5.25, 6.25])
  }

  @Test func `an occurrence postponed by a limit is skipped if it is too late`() async throws {
    let limit = RateLimit.atMost(1, per: .seconds(600), of: Note.self, key: { $0.text })
    let queue = await bench.makeQueue(on: InMemoryStore(), rateLimits: [limit])
    try await queue.schedule("s", .hours, Note("a"), missed: .skip)
    try await queue.enqueue(Note("a"), delay: .seconds(3_595))
    let events = queue.events
    async let texts = bench.scheduleTexts(in: events)
    try await withRunning(queue) { try await bench.advance(hours: 2.5) }
    // The first entry is from the task that was enqueued without a schedule.
    #expect(bench.log.entries.map(\.missed) == [-1, 0])
    #expect(bench.log.entries.map(\.date).last == 2)
    #expect(bench.log.entries.map(\.now).last == 2)
    #expect(await texts == ["s: 1 skipped"])
  }
}
