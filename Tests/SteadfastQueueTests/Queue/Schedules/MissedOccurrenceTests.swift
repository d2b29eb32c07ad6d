import Foundation
import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

/// Tests dates of a schedule that pass while no queue or the previous occurrence is running.
@Suite(.virtualTime) struct MissedOccurrenceTests {
  let bench: ScheduleBench

  init() throws { bench = try ScheduleBench() }

  /// Makes a schedule, waits for some hours, and runs a queue for half an hour.
  ///
  /// - Returns: The texts of the events about missed dates.
  private func missedTexts(
    _ missed: MissedOccurrences,
    hours: Double,
    overlaps: Bool = false,
    spread: Duration = .zero
  ) async throws -> [String] {
    let store = InMemoryStore()
    let first = await bench.makeQueue(on: store)
    try await first.schedule("s", .hours, Note("a"), missed: missed, overlaps: overlaps)
    try await bench.advance(hours: hours)
    let queue = await bench.makeQueue(on: store)
    let events = queue.events
    async let texts = bench.scheduleTexts(in: events)
    try await withRunning(queue) { try await bench.advance(hours: 0.5) }
    return await texts
  }

  @Test func `a date missed while no queue runs is made up for`() async throws {
    #expect(try await missedTexts(.once(), hours: 1.25) == [])
    #expect(bench.log.entries == [Occasion(text: "a", date: 1, now: 1.25, isLate: true)])
  }

  @Test(arguments: [false, true])
  func `one occurrence makes up for several missed dates`(overlaps: Bool) async throws {
    #expect(try await missedTexts(.once(), hours: 5.25, overlaps: overlaps) == ["s: 4 made up for"])
    #expect(
      bench.log.entries == [Occasion(text: "a", date: 5, now: 5.25, isLate: true, missed: 4)]
    )
  }

  @Test func `missed dates are skipped if the latest of them is too old`() async throws {
    #expect(try await missedTexts(.once(within: .seconds(600)), hours: 5.25) == ["s: 5 skipped"])
    #expect(bench.log.entries == [])
  }

  @Test func `missed dates are skipped, and the next occurrence is on time`() async throws {
    #expect(try await missedTexts(.skip, hours: 5.75) == ["s: 5 skipped"])
    #expect(bench.log.entries == [Occasion(text: "a", date: 6, now: 6)])
  }

  @Test(arguments: [false, true])
  func `each missed date is made up for, up to the limit`(overlaps: Bool) async throws {
    #expect(
      try await missedTexts(.each(atMost: 3), hours: 5.25, overlaps: overlaps) == ["s: 2 skipped"]
    )
    #expect(bench.log.entries.map(\.date) == [3, 4, 5])
    #expect(bench.log.entries.allSatisfy { $0.now == 5.25 && $0.isLate && $0.missed == 0 })
  }

  @Test(arguments: [
    (MissedOccurrences.once(), [1, 3, 6], ["s: 1 made up for", "s: 2 made up for"]),
    (.skip, [1, 4], ["s: 2 skipped"]),
    (.each(atMost: 12), [1, 2, 3], []),
  ])
  func `dates that pass while the previous occurrence runs count as missed`(
    missed: MissedOccurrences,
    dates: [Double],
    expected: [String]
  ) async throws {
    let queue = await bench.makeQueue(on: InMemoryStore())
    try await queue.schedule("s", .hours, Note("takes 2.5"), missed: missed)
    let events = queue.events
    async let texts = bench.scheduleTexts(in: events)
    try await withRunning(queue) { try await bench.advance(hours: 6.2) }
    #expect(bench.log.entries.map(\.date) == dates)
    #expect(await texts.prefix(expected.count) == expected[...])
  }

  @Test
  func `if overlaps are allowed, an occurrence may start before the previous occurrence ends`()
    async throws
  {
    let queue = await bench.makeQueue(on: InMemoryStore(), workers: 4)
    try await queue.schedule("s", .hours, Note("takes 2.5"), overlaps: true)
    try await withRunning(queue) {
      try await bench.advance(hours: 4.2)
      #expect(bench.log.entries.map(\.now) == [1, 2, 3, 4])
      #expect(try await queue.count(matching: TaskFilter(states: [.running])) == 3)
      try await queue.unschedule("s")
    }
  }

  @Test func `a retry has the date and the missed count of its occurrence`() async throws {
    let store = InMemoryStore()
    let queue = await bench.makeQueue(on: store)
    try await queue.schedule("s", .hours, Note("retries"))
    try await bench.advance(hours: 3.25)
    try await withRunning(queue) { try await bench.advance(hours: 0.5) }
    #expect(bench.log.entries.map(\.date) == [3, 3])
    #expect(bench.log.entries.map(\.missed) == [2, 2])
  }

  @Test func `a rescheduled occurrence starts at its new date`() async throws {
    let store = InMemoryStore()
    let first = await bench.makeQueue(on: store)
    try await first.schedule("s", .hours, Note("a"))
    let id = try #require(try await first.tasks().first?.id)
    try await first.reschedule(id, to: bench.start + 2.5 * 3_600)
    try await withRunning(first) { try await bench.advance(hours: 3.5) }
    #expect(bench.log.entries.map(\.date) == [1, 2, 3])
    #expect(bench.log.entries.map(\.now) == [2.5, 2.5, 3])
    // An occurrence can also be performed early.
    let queue = await bench.makeQueue(on: store)
    let next = try #require(try await queue.tasks().first?.id)
    try await queue.performNow(next)
    try await withRunning(queue) { try await bench.advance(hours: 1) }
    #expect(bench.log.entries.last == Occasion(text: "a", date: 4, now: 3.5))
    #expect(try await queue.occurrences(of: "s", count: 1).map(bench.hoursFromStart) == [5])
  }

  @Test func `a paused queue misses dates`() async throws {
    let queue = await bench.makeQueue(on: InMemoryStore())
    try await queue.schedule("s", .hours, Note("a"))
    await queue.pause()
    try await withRunning(queue) {
      try await bench.advance(hours: 3.2)
      await queue.resume()
      try await bench.advance(hours: 0.1)
    }
    #expect(bench.log.entries.map(\.date) == [3])
  }
}
