import Foundation
import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

/// Tests schedules in sealed, shared and failing stores, and in groups.
@Suite(.virtualTime) struct ScheduleStoreTests {
  let bench: ScheduleBench

  init() throws { bench = try ScheduleBench() }

  @Test func `a sealed store also seals the payload of a schedule`() async throws {
    let base = InMemoryStore()
    let seal = TestSeal()
    let store = FaultInjectingStore(base.sealingPayloads(with: seal.payloadSeal))
    let queue = await bench.makeQueue(on: store)
    try await queue.schedule("s", .hours, Note("secret"))
    try await queue.schedule("s", .hours, Note("secret"))
    let name = ScheduleKey("s").valueName
    let bytes = try #require(try await base.value(named: name))
    #expect(!String(decoding: bytes, as: UTF8.self).contains("secret"))
    #expect(try await store.value(named: name) != bytes)
    try await withRunning(queue) { try await bench.advance(hours: 2.5) }
    #expect(bench.log.entries.map(\.text) == ["secret", "secret"])
  }

  @Test func `a schedule is stored as the same bytes as by earlier versions`() async throws {
    let store = InMemoryStore()
    let queue = await bench.makeQueue(on: store)
    try await queue.schedule("s", .hours, Note("a"))
    let task = try #require(try await queue.tasks().first)
    let name = "steadfast.schedule.\(ScheduleKey("s").valueName.suffix(9))"
    let bytes = try #require(try await store.value(named: name))
    #expect(
      String(decoding: bytes, as: UTF8.self) == #"""
        {"definition":{"rule":"hourly 0","task":{"format":"json","json":"{\"text\":\"a\"}",\#
        "name":"Note","version":1},"zone":"GMT"},"id":"\#(task.id)","instant":978310800,\#
        "lastInstant":978307200,"name":"s"}
        """#
    )
    #expect(task.id.description.hasPrefix("00e3c7a7-3400-8"))
  }

  @Test func `schedules that can't be read for a moment are read again`() async throws {
    let store = FaultInjectingStore()
    let queue = await bench.makeQueue(on: store)
    try await queue.schedule("s", .hours, Note("a"))
    store.inject(.transientError, .beforeEffect, times: 3) { $0.kind == .value }
    try await withRunning(queue) { try await bench.advance(hours: 1.5) }
    #expect(bench.log.entries.map(\.date) == [1])
    #expect(try await queue.statistics.storeRetries == 3)
  }

  @Test func `a schedule that can't be decrypted doesn't affect other tasks`() async throws {
    let base = InMemoryStore()
    let seal = TestSeal()
    let first = await bench.makeQueue(on: base.sealingPayloads(with: seal.payloadSeal))
    try await first.schedule("s", .hours, Note("a"))
    seal.setKeys(0x77)
    let second = await bench.makeQueue(on: base.sealingPayloads(with: seal.payloadSeal))
    try await second.enqueue(Note("plain"))
    let events = second.events
    async let texts = bench.scheduleTexts(in: events)
    try await withRunning(second) { try await bench.advance(hours: 1.5) }
    #expect(bench.log.entries.map(\.text) == ["plain"])
    #expect(await texts.contains("\(ScheduleKey("s").valueName): parked"))
    // With the right key again, the unreadable occurrence is available, and the schedule continues.
    seal.setKeys(0x5A)
    let third = await bench.makeQueue(on: base.sealingPayloads(with: seal.payloadSeal))
    try await withRunning(third) { try await bench.advance(hours: 1) }
    #expect(bench.log.entries.map(\.date).dropFirst() == [1, 2])
  }

  /// The reason why a schedule can't be read.
  enum Damage: CaseIterable {
    case otherKey
    case otherText
  }

  /// Makes a queue on a store that contains an unreadable schedule and the schedule's occurrence.
  private func queueWithUnreadableSchedule(_ damage: Damage) async throws -> TaskQueue {
    let base = InMemoryStore()
    let seal = TestSeal()
    let store: any Persistence =
      switch damage {
      case .otherKey: base.sealingPayloads(with: seal.payloadSeal)
      case .otherText: base
      }
    let queue = await bench.makeQueue(on: store)
    try await queue.schedule("s", .hours, Note("old"))
    try await queue.enqueue(Note("plain"))
    if damage == .otherKey {
      seal.setKeys(0x77, 0x5A)
      try await queue.schedule("t", .hours, Note("t"))
      seal.setKeys(0x77)
    } else {
      try await queue.schedule("t", .hours, Note("t"))
      let name = ScheduleKey("s").valueName
      let bytes = try await base.value(named: name)
      let change = TaskChange.setValue(named: name, from: bytes, to: Array("{}".utf8))
      _ = try await base.apply([change], durability: .durable)
    }
    return queue
  }

  @Test(arguments: Damage.allCases)
  func `an unreadable schedule can be removed`(damage: Damage) async throws {
    let queue = try await queueWithUnreadableSchedule(damage)
    #expect(try await queue.unschedule("s"))
    #expect(try await queue.unschedule("s") == false)
    #expect(try await queue.schedules().map(\.name) == ["t"])
    #expect(try await queue.count == 2)
    try await queue.schedule("s", .hours, Note("new"))
    #expect(try await queue.schedules().map(\.name) == ["s", "t"])
  }

  @Test(arguments: Damage.allCases)
  func `an unreadable schedule can be replaced`(damage: Damage) async throws {
    let queue = try await queueWithUnreadableSchedule(damage)
    try await queue.schedule("s", .hours, Note("new"))
    try await withRunning(queue) { try await bench.advance(hours: 1.5) }
    #expect(Set(bench.log.entries.map(\.text)).isSuperset(of: ["new", "t"]))
    #expect(!bench.log.entries.map(\.text).contains("old"))
    #expect(try await queue.schedules().map(\.name) == ["s", "t"])
  }

  @Test func `an unreadable schedule doesn't stop a run`() async throws {
    let queue = try await queueWithUnreadableSchedule(.otherText)
    let events = queue.events
    async let texts = bench.scheduleTexts(in: events)
    try await withRunning(queue) { try await bench.advance(hours: 1.5) }
    // No occurrence follows the old one until the schedule can be read again.
    #expect(bench.log.entries.map(\.text).sorted() == ["old", "plain", "t"])
    #expect(await texts.contains("\(ScheduleKey("s").valueName): parked"))
  }

  @Test func `a schedule with an unsupported time zone is parked until the zone is available`()
    async throws
  {
    let store = InMemoryStore()
    let key = ScheduleKey("s")
    let first = await bench.makeQueue(on: store)
    try await first.schedule("s", .daily(at: .time(2, 0), in: zone("Europe/Berlin")), Note("a"))
    // Makes the time zone unknown, as if the process didn't support it.
    let bytes = try #require(try await store.value(named: key.valueName))
    let text = String(decoding: bytes, as: UTF8.self)
      .replacingOccurrences(of: "Europe/Berlin", with: "Nowhere/Town")
    let change = TaskChange.setValue(named: key.valueName, from: bytes, to: Array(text.utf8))
    _ = try await store.apply([change], durability: .durable)
    let queue = await bench.makeQueue(on: store)
    let events = queue.events
    async let texts = bench.scheduleTexts(in: events)
    try await queue.enqueue(Note("plain"), delay: .seconds(30 * 3_600))
    try await withRunning(queue) { try await bench.advance(hours: 50) }
    #expect(bench.log.entries.map(\.text) == ["a", "plain"])
    #expect(await texts == ["s: parked"])
    let parked = try #require(try await queue.schedules().first)
    #expect(parked.occurrence == nil)
    #expect(parked.parkedReason?.contains("'Nowhere/Town'") == true)
    #expect(parked.parkedReason?.contains("FoundationInternationalization") == true)
    #expect(try await queue.occurrences(of: "s", count: 5) == [])
    // Each run reports the parked schedule again.
    let again = await bench.makeQueue(on: store)
    let more = again.events
    async let reported = bench.scheduleTexts(in: more)
    try await withRunning(again) { try await bench.advance(hours: 1) }
    #expect(await reported == ["s: parked"])
    // Replacing the rule unparks the schedule.
    try await again.schedule("s", .hours, Note("b"))
    #expect(try await again.schedules().map(\.parkedReason) == [nil])
    let last = await bench.makeQueue(on: store)
    try await withRunning(last) { try await bench.advance(hours: 1.5) }
    #expect(bench.log.entries.map(\.text) == ["a", "plain", "b"])
  }

  @Test func `each queue of a group has its own schedules`() async throws {
    let group = TaskQueueGroup(clock: bench.clock) { await bench.registerHandler(in: $0) }
    let names = ["default", "x", "y"]
    for name in names {
      let queue = try await group.addQueue(name)
      try await queue.schedule("s", .hours, Note(name))
    }
    try await withThrowingTaskGroup { tasks in
      tasks.addTask { try await group.run() }
      try await bench.advance(hours: 2.5)
      await group.shutDown()
      try await tasks.waitForAll()
    }
    #expect(bench.log.entries.map(\.text).sorted() == (names + names).sorted())
    #expect(try await group.queue(named: "x").unschedule("s"))
    #expect(try await group.queue(named: "x").schedules().isEmpty)
    #expect(try await group.queue(named: "y").schedules().map(\.name) == ["s"])
    #expect(try await group.count() == 2)
  }

  @Test func `a schedule is read again if another process changes it between reading and storing`()
    async throws
  {
    let base = InMemoryStore()
    let store = InterruptedStore(base)
    let queue = await bench.makeQueue(on: store)
    let other = await bench.makeQueue(on: base)
    store.beforeNextBatch { try await other.schedule("s", .hours, Note("a")) }
    try await queue.schedule("s", .hours, Note("a"))
    #expect(try await queue.count == 1)
    // Both queues end the same occurrence, and only one queue adds the next occurrence.
    let id = try #require(try await queue.tasks().first?.id)
    store.beforeNextBatch { try await other.cancel(id) }
    #expect(try await queue.cancel(id) == false)
    #expect(try await queue.tasks().map { bench.hoursFromStart(to: $0.availableDate) } == [2])
    // The schedule's rule changes while the occurrence ends.
    let next = try #require(try await queue.tasks().first?.id)
    store.beforeNextBatch { try await other.schedule("s", .hourly(minute: 30), Note("b")) }
    #expect(try await queue.cancel(next) == false)
    // The new rule continues from the last date, one hour after the start.
    #expect(try await queue.tasks().map { bench.hoursFromStart(to: $0.availableDate) } == [1.5])
    // Another process ends one of several occurrences of a batch.
    try await queue.schedule("t", .hours, Note("t"))
    store.beforeNextBatch { try await other.unschedule("s") }
    try await queue.enqueue(Note("plain"), delay: .seconds(5))
    store.beforeNextBatch { try await other.unschedule("s") }
    #expect(try await queue.cancelAll() == 2)
    #expect(try await queue.tasks().map { bench.hoursFromStart(to: $0.availableDate) } == [2])
  }

  @Test func `if the end of an occurrence is sent again, only one occurrence follows`()
    async throws
  {
    let store = FaultInjectingStore()
    let queue = await bench.makeQueue(on: store)
    try await queue.schedule("s", .hours, Note("a"))
    store.inject(.transientError, times: 2) { $0.changes.contains("succeed") }
    let events = queue.events
    async let enqueued = events.reduce(into: 0) { count, event in
      if case .enqueued = event { count += 1 }
    }
    try await withRunning(queue) { try await bench.advance(hours: 3.5) }
    #expect(bench.log.entries.map(\.date) == [1, 2, 3])
    #expect(try await queue.tasks().map { bench.hoursFromStart(to: $0.availableDate) } == [4])
    #expect(await enqueued == 3)
  }

  @Test func `a schedule whose change is sent again is stored once`() async throws {
    let store = FaultInjectingStore()
    let queue = await bench.makeQueue(on: store)
    try await withRunning(queue) {
      store.inject(.transientError, times: 1) { $0.changes.contains("insert") }
      try await queue.schedule("s", .hours, Note("a"))
      #expect(try await queue.count == 1)
      store.inject(.transientError, times: 1) { $0.changes.contains("cancel") }
      try await queue.schedule("s", .hours, Note("b"))
      #expect(try await queue.count == 1)
      try await bench.advance(hours: 1.5)
      store.inject(.transientError, times: 1) { $0.changes.contains("cancel") }
      #expect(try await queue.unschedule("s"))
      #expect(try await queue.count == 0)
    }
    #expect(bench.log.entries.map(\.text) == ["b"])
  }

  @Test func `an occurrence's end that couldn't be stored is stored by the next run`()
    async throws
  {
    let store = FaultInjectingStore(appliesAtOnce: true)
    let queue = await bench.makeQueue(on: store)
    try await queue.schedule("s", .hours, Note("a"))
    store.inject(.error(Refusal()), .afterEffect, times: 1) { $0.changes.contains("succeed") }
    try await bench.advance(hours: 1)
    await #expect(throws: TaskQueueError.self) { try await queue.run() }
    try await withRunning(queue) { try await bench.advance(hours: 1.5) }
    #expect(bench.log.entries.map(\.date) == [1, 2])
  }
}
