import Foundation
import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

/// Tests schedules that ran while the clock was ahead, after the clock was corrected.
@Suite(.virtualTime) struct ScheduleClockTests {
  private static let year = 365.0 * 24

  let bench: ScheduleBench

  init() throws { bench = try ScheduleBench() }

  /// Sets the clock to the given number of hours after the start of the test.
  private func setClock(to hours: Double) { bench.clock.setDate(bench.start + hours * 3_600) }

  private func occurrenceHour(in queue: TaskQueue) async throws -> Double? {
    try await queue.tasks().first?.id.occurrenceDate.map(bench.hoursFromStart)
  }

  /// Returns a store whose schedule ran while the clock was a year ahead, and corrects the clock.
  private func makeStoreUsedAYearAhead() async throws -> InMemoryStore {
    let store = InMemoryStore()
    let queue = await bench.makeQueue(on: store)
    setClock(to: Self.year)
    try await queue.schedule("s", .hours, Note("a"))
    try await withRunning(queue) { try await bench.advance(hours: 1.25) }
    setClock(to: 0.5)
    return store
  }

  @Test(arguments: [true, false])
  func `a schedule continues after the clock was a year ahead`(isMadeAgain: Bool) async throws {
    let store = try await makeStoreUsedAYearAhead()
    let queue = await bench.makeQueue(on: store)
    if isMadeAgain { try await queue.schedule("s", .hours, Note("a")) }
    try await withRunning(queue) { try await bench.advance(hours: 1.75) }
    #expect(bench.log.entries.map(\.date) == [Self.year + 1, 1, 2])
    #expect(bench.log.entries.map(\.now) == [Self.year + 1, 1, 2])
    #expect(bench.log.entries.map(\.missed) == [0, 0, 0])
    #expect(try await queue.count == 1)
  }

  @Test func `a schedule of a running queue continues when the clock is set back by a year`()
    async throws
  {
    let queue = await bench.makeQueue(on: InMemoryStore())
    setClock(to: Self.year)
    try await queue.schedule("s", .hours, Note("a"))
    try await withRunning(queue) {
      try await bench.advance(hours: 1.25)
      setClock(to: 0)
      // The next claim detects the new date.
      try await queue.enqueue(Note("b"))
      try await bench.advance(hours: 1.25)
    }
    let entries = bench.log.entries.filter { $0.text == "a" }
    #expect(entries.map(\.date) == [Self.year + 1, 1])
  }

  @Test(arguments: [nil, StoreSharing()])
  func `after the clock is corrected, a new rule or payload applies from the current date`(
    sharing: StoreSharing?
  ) async throws {
    let alone = InMemoryStore()
    let shared = sharing.map { SharedStore($0) }
    func store() -> any Persistence { shared?.process() ?? alone }
    let first = await bench.makeQueue(on: store())
    setClock(to: Self.year)
    try await first.schedule("s", .every(.seconds(7_200)), Note("a"))
    try await withRunning(first) { try await bench.advance(hours: 4.25) }
    setClock(to: 0.25)
    let queue = await bench.makeQueue(on: store())
    try await queue.schedule("s", .hours, Note("a"))
    #expect(try await occurrenceHour(in: queue) == 1)
    setClock(to: Self.year)
    try await withRunning(queue) { try await bench.advance(hours: 1.25) }
    setClock(to: 0.25)
    let last = await bench.makeQueue(on: store())
    try await last.schedule("s", .hours, Note("b"))
    // The clock of a process that shares the store may be slow.
    #expect(try await occurrenceHour(in: last) == (sharing == nil ? 1 : Self.year + 2))
    #expect(try await last.count == 1)
  }

  @Test func `no date is repeated if the clock moves back by less than three hours`() async throws {
    let store = InMemoryStore()
    let first = await bench.makeQueue(on: store)
    try await first.schedule("s", .hours, Note("a"))
    try await withRunning(first) { try await bench.advance(hours: 3.25) }
    setClock(to: 0.25)
    let queue = await bench.makeQueue(on: store)
    try await queue.schedule("s", .hours, Note("a"))
    try await withRunning(queue) { try await bench.advance(hours: 4) }
    #expect(bench.log.entries.map(\.date) == [1, 2, 3, 4])
  }

  @Test func `cancelled dates aren't repeated, even if they are far ahead`() async throws {
    let store = InMemoryStore()
    let first = await bench.makeQueue(on: store)
    try await first.schedule("s", .hours, Note("a"))
    for _ in 1...9 { #expect(try await first.cancel(matching: TaskFilter()) == 1) }
    let queue = await bench.makeQueue(on: store)
    try await queue.schedule("s", .hours, Note("a"))
    try await withRunning(queue) { try await bench.advance(hours: 11.5) }
    #expect(bench.log.entries.map(\.date) == [10, 11])
  }

  @Test func `dates missed since the clock was corrected are made up for`() async throws {
    let store = try await makeStoreUsedAYearAhead()
    let second = await bench.makeQueue(on: store)
    try await second.schedule("s", .hours, Note("a"))
    #expect(try await occurrenceHour(in: second) == 1)
    setClock(to: 3.25)
    let queue = await bench.makeQueue(on: store)
    try await queue.schedule("s", .hours, Note("a"))
    try await withRunning(queue) { try await bench.advance(hours: 0.5) }
    #expect(bench.log.entries.map(\.date) == [Self.year + 1, 3])
    #expect(bench.log.entries.last?.missed == 2)
  }

  @Test func `a rescheduled or paused occurrence isn't changed`() async throws {
    let store = InMemoryStore()
    let first = await bench.makeQueue(on: store)
    setClock(to: Self.year)
    for name in ["moved", "paused"] { try await first.schedule(name, .hours, Note(name)) }
    try await withRunning(first) { try await bench.advance(hours: 1.25) }
    let tasks = try await first.tasks().sorted { $0.id < $1.id }
    let texts = try tasks.map { try $0.payload(as: Note.self).text }
    for (task, text) in zip(tasks, texts) {
      if text == "moved" {
        try await first.reschedule(task.id, to: bench.start + (Self.year + 3) * 3_600)
      } else {
        try await first.pause(task.id)
      }
    }
    setClock(to: 0)
    let queue = await bench.makeQueue(on: store)
    try await withRunning(queue) { try await bench.advance(hours: 1.5) }
    #expect(try await queue.tasks().map(\.id).sorted() == tasks.map(\.id))
    #expect(bench.log.entries.count == 2)
  }
}
