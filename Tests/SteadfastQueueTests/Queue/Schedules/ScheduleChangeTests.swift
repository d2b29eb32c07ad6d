import Foundation
import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

/// Tests changes of the rule or the payload of a schedule.
@Suite(.virtualTime) struct ScheduleChangeTests {
  let bench: ScheduleBench

  init() throws { bench = try ScheduleBench() }

  @Test func `an overdue occurrence gets the new schedule's payload, and is performed`()
    async throws
  {
    let store = InMemoryStore()
    let first = await bench.makeQueue(on: store)
    try await first.schedule("s", .hours, Note("old"), options: TaskOptions(priority: .low))
    try await bench.advance(hours: 1.25)
    let queue = await bench.makeQueue(on: store)
    try await queue.schedule("s", .hours, Note("new"), options: TaskOptions(priority: .high))
    let tasks = try await queue.tasks()
    #expect(tasks.map { $0.id.occurrenceDate.map(bench.hoursFromStart) } == [1])
    #expect(tasks.map(\.priority) == [.high])
    #expect(try await queue.schedules().map(\.occurrence) == tasks.map(\.id))
    try await withRunning(queue) { try await bench.advance(hours: 0.1) }
    #expect(
      bench.log.entries == [Occasion(text: "new", date: 1, now: 1.25, isLate: true, missed: 0)]
    )
  }

  @Test func `a rescheduled occurrence retains its date when its payload changes`() async throws {
    let queue = await bench.makeQueue(on: InMemoryStore())
    try await queue.schedule("s", .hours, Note("old"))
    let id = try #require(try await queue.tasks().first?.id)
    try await queue.reschedule(id, to: bench.start + 2.5 * 3_600)
    try await queue.schedule("s", .hours, Note("new"))
    let task = try #require(try await queue.tasks().first)
    #expect(task.id != id && bench.hoursFromStart(to: task.availableDate) == 2.5)
    #expect(task.id.occurrenceDate.map(bench.hoursFromStart) == 1)
  }

  @Test(arguments: [(0.5, []), (1.25, ["s: 1 skipped"]), (3.25, ["s: 3 skipped"])])
  func `dates skipped by a new rule are reported`(hours: Double, expected: [String]) async throws {
    let queue = await bench.makeQueue(on: InMemoryStore())
    try await queue.schedule("s", .hours, Note("old"))
    try await bench.advance(hours: hours)
    let events = queue.events
    async let texts = bench.scheduleTexts(in: events)
    try await queue.schedule("s", .every(.seconds(86_400)), Note("new"))
    try await withRunning(queue) { try await bench.advance(hours: 0.1) }
    #expect(await texts == expected)
    #expect(bench.log.entries.isEmpty)
    #expect(try await queue.count == 1)
  }

  @Test func `payloads differ if the bytes of their strings differ`() async throws {
    let queue = await bench.makeQueue(on: InMemoryStore())
    try await queue.schedule("s", .hours, Note("e\u{301}"))
    try await queue.schedule("s", .hours, Note("\u{E9}"))
    let task = try #require(try await queue.tasks().first)
    let text = try task.payload(as: Note.self).text
    #expect(Array(text.utf8) == Array("\u{E9}".utf8))
    #expect(try await queue.count == 1)
  }

  @Test func `a schedule of the maximum size can still be parked, and make up for missed dates`()
    async throws
  {
    let store = InMemoryStore()
    let first = await bench.makeQueue(on: store)
    let note = Note(String(repeating: "x", count: 64_200))
    try await first.schedule("s", .hours, note)
    try await bench.advance(hours: 30.25)
    let queue = await bench.makeQueue(on: store)
    try await withRunning(queue) { try await bench.advance(hours: 0.5) }
    #expect(bench.log.entries.map(\.missed) == [29])
    let name = ScheduleKey("s").valueName
    let bytes = try #require(try await store.value(named: name))
    let text = String(decoding: bytes, as: UTF8.self)
      .replacingOccurrences(of: #""zone":"GMT""#, with: #""zone":"Nowhere/Town""#)
    let change = TaskChange.setValue(named: name, from: bytes, to: Array(text.utf8))
    _ = try await store.apply([change], durability: .durable)
    let last = await bench.makeQueue(on: store)
    try await withRunning(last) { try await bench.advance(hours: 1) }
    #expect(try await last.schedules().first?.parkedReason != nil)
  }
}
