import Foundation
import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

/// Tests that an occurrence adds its successor when it begins, and that the two never overlap.
@Suite(.virtualTime) struct OccurrenceStartTests {
  let bench: ScheduleBench

  init() throws { bench = try ScheduleBench() }

  @Test func `an occurrence cancelled while it waits for the store isn't performed`()
    async throws
  {
    let store = FaultInjectingStore()
    let queue = await bench.makeQueue(on: store)
    try await queue.schedule("s", .hours, Note("a"))
    let id = try #require(try await queue.tasks().first?.id)
    let task = try #require(try await queue.task(id))
    try await withRunning(queue) {
      try await bench.advance(hours: 0.5)
      store.inject(.transientError, times: nil) { $0.kind == .value }
      try await bench.advance(hours: 1)
      // The occurrence was claimed, but its schedule can't be read.
      #expect(try await task.record()?.state == .running)
      #expect(try await task.cancel())
      store.restore()
      #expect(try await task.outcome() == .cancelled)
      try await bench.advance(hours: 0.1)
      #expect(try await queue.tasks().map { bench.hoursFromStart(to: $0.availableDate) } == [2])
    }
    #expect(bench.log.entries.isEmpty)
  }

  @Test(arguments: StoreKind.allCases)
  func `while an occurrence runs, its successor waits for it`(kind: StoreKind) async throws {
    try await kind.withStore { store in
      let queue = await bench.makeQueue(on: store)
      try await queue.schedule("s", .hours, Note("takes 0.5"))
      try await withRunning(queue) {
        try await bench.advance(hours: 1.2)
        let tasks = try await queue.tasks().sorted { $0.id < $1.id }
        #expect(tasks.map(\.state) == [.running, .waiting])
        #expect(tasks.last?.dependencies.tasks == [try #require(tasks.first).id])
        #expect(tasks.last?.dependencies.rule == .allEnded)
        try await bench.advance(hours: 1)
      }
      #expect(bench.log.entries.map(\.now) == [1, 2])
    }
  }

  @Test func `a schedule is stored durably, the beginning of an occurrence needs no flush`()
    async throws
  {
    let store = InterruptedStore(InMemoryStore())
    let queue = await bench.makeQueue(on: store)
    try await queue.schedule("s", .hours, Note("a"))
    #expect(store.durabilitiesOfValues == [.durable])
    try await withRunning(queue) { try await bench.advance(hours: 1.5) }
    #expect(store.durabilitiesOfValues == [.durable, .relaxed])
  }

  @Test func `if the successor is sent again, it is added and reported once`() async throws {
    let store = FaultInjectingStore()
    let queue = await bench.makeQueue(on: store)
    try await queue.schedule("s", .hours, Note("a"))
    let events = queue.events
    async let enqueued = events.reduce(into: 0) { count, event in
      if case .enqueued = event { count += 1 }
    }
    store.inject(.transientError, times: 2) { $0.changes.contains("insert") }
    try await withRunning(queue) { try await bench.advance(hours: 3.5) }
    #expect(bench.log.entries.map(\.date) == [1, 2, 3])
    #expect(try await queue.tasks().map { bench.hoursFromStart(to: $0.availableDate) } == [4])
    #expect(await enqueued == 3)
  }

  @Test func `an interrupted occurrence adds no second successor`() async throws {
    let store = InMemoryStore()
    let first = await bench.makeQueue(on: store)
    try await first.schedule("s", .hours, Note("takes 0.5"))
    try await withThrowingTaskGroup { group in
      group.addTask { try await first.run() }
      try await bench.advance(hours: 1.2)
      await first.shutDown(within: .zero)
      try await group.waitForAll()
    }
    #expect(try await first.count == 2)
    let second = await bench.makeQueue(on: store)
    try await withRunning(second) { try await bench.advance(hours: 1.2) }
    #expect(bench.log.entries.map(\.date) == [1, 1, 2])
    #expect(try await second.tasks().map { bench.hoursFromStart(to: $0.availableDate) } == [3])
  }

  @Test func `if a successor is cancelled, the next one waits for the running occurrence, too`()
    async throws
  {
    let queue = await bench.makeQueue(on: InMemoryStore(), workers: 4)
    try await queue.schedule("s", .hours, Note("takes 2.5"))
    try await withRunning(queue) {
      try await bench.advance(hours: 1.2)
      let successor = try #require(try await queue.tasks().max { $0.id < $1.id })
      #expect(try await queue.cancel(successor.id))
      #expect(try await queue.tasks().map { bench.hoursFromStart(to: $0.availableDate) } == [1, 3])
      try await bench.advance(hours: 2.4)
    }
    #expect(bench.log.entries.map(\.date) == [1, 3])
    #expect(bench.log.entries.map(\.now) == [1, 3.5])
  }

  @Test func `a schedule that is removed and made again doesn't overlap with its occurrence`()
    async throws
  {
    let queue = await bench.makeQueue(on: InMemoryStore(), workers: 4)
    try await queue.schedule("s", .hours, Note("takes 2.5"))
    try await withRunning(queue) {
      try await bench.advance(hours: 1.2)
      #expect(try await queue.unschedule("s"))
      try await queue.schedule("s", .hours, Note("new"))
      try await bench.advance(hours: 2.5)
    }
    #expect(bench.log.entries.map(\.text) == ["takes 2.5", "new"])
    #expect(bench.log.entries.map(\.now) == [1, 3.5])
  }

  @Test(arguments: [["new"], ["new", "newest"]])
  func `an occurrence that was claimed while it was replaced isn't performed`(
    texts: [String]
  ) async throws {
    let shared = SharedStore(
      StoreSharing(leaseDuration: .seconds(60), pollInterval: .seconds(10))
    )
    let slow = FaultInjectingStore(shared.process())
    let queue = await bench.makeQueue(on: slow, workers: 4)
    let store = InterruptedStore(shared.process())
    let other = await bench.makeQueue(on: store)
    try await other.schedule("s", .hours, Note("old"))
    slow.inject(.hang, .beforeEffect) { $0.changes.contains("insert") }
    try await withRunning(queue) {
      store.beforeNextBatch {
        // The queue claims the occurrence, and is about to advance the schedule.
        try await bench.advance(hours: 1.1)
        try await slow.waitForHeldCalls()
      }
      for text in texts { try await other.schedule("s", .hours, Note(text)) }
      slow.letGo()
      slow.restore()
      try await bench.advance(hours: 0.3)
    }
    #expect(bench.log.entries.map(\.text) == texts.suffix(1))
    #expect(bench.log.entries.map(\.date) == [1])
  }

  @Test func `a schedule that an earlier version has stored goes on`() async throws {
    // Earlier versions advanced a schedule when an occurrence ended, so this one has begun.
    let store = InMemoryStore()
    let first = await bench.makeQueue(on: store)
    try await first.schedule("s", .hours, Note("a"))
    let record = try #require(try await first.tasks().first)
    try await bench.advance(hours: 1)
    let claim = try await store.claim(
      ClaimRequest(limit: 1, names: ["Note": 1], now: bench.clock.date)
    )
    let lease = try #require(claim.tasks.first?.lease)
    let failure = TaskFailure(reason: "no", date: bench.clock.date)
    let retry = TaskChange.retry(
      lease,
      availableDate: bench.clock.date + 60,
      retryCount: 1,
      failure: failure
    )
    #expect(try await store.apply([retry], durability: .durable) == [.done])
    let queue = await bench.makeQueue(on: store)
    try await withRunning(queue) { try await bench.advance(hours: 1.5) }
    #expect(bench.log.entries.map(\.date) == [1, 2])
    #expect(try await queue.task(record.id)?.record() == nil)
    #expect(try await queue.tasks().map { bench.hoursFromStart(to: $0.availableDate) } == [3])
  }

  @Test func `a schedule that is made again waits for an occurrence claimed during its removal`()
    async throws
  {
    let shared = SharedStore(
      StoreSharing(leaseDuration: .seconds(60), pollInterval: .seconds(10))
    )
    let queue = await bench.makeQueue(on: shared.process())
    let store = InterruptedStore(shared.process())
    let other = await bench.makeQueue(on: store)
    try await other.schedule("s", .hours, Note("takes 1.5"))
    try await withRunning(queue) {
      store.beforeNextBatch { try await bench.advance(hours: 1.1) }
      #expect(try await other.unschedule("s"))
      try await other.schedule("s", .hours, Note("again"))
      try await bench.advance(hours: 1.2)
      #expect(bench.log.entries.map(\.text) == ["takes 1.5"])
      try await bench.advance(hours: 0.3)
    }
    #expect(bench.log.entries.map(\.text) == ["takes 1.5", "again"])
  }

  @Test(arguments: [FaultInjectingStore.Moment.beforeEffect, .afterEffect])
  func `a schedule goes on after the answer to a cancellation was lost`(
    moment: FaultInjectingStore.Moment
  ) async throws {
    let store = FaultInjectingStore(appliesAtOnce: true)
    let queue = await bench.makeQueue(on: store)
    try await queue.schedule("s", .hours, Note("a"))
    let id = try #require(try await queue.tasks().first?.id)
    try await withRunning(queue) {
      store.inject(.error(Refusal()), moment, times: 1) { $0.changes.contains("cancel") }
      await #expect(throws: Refusal.self) { try await queue.cancel(id) }
      try await bench.advance(hours: 2.5)
    }
    #expect(bench.log.entries.map(\.date) == (moment == .afterEffect ? [2] : [1, 2]))
  }

  @Test func `a date that was cancelled doesn't come back when the schedule changes`() async throws
  {
    let store = InMemoryStore()
    let queue = await bench.makeQueue(on: store)
    try await queue.schedule("s", .hours, Note("a"))
    let id = try #require(try await queue.tasks().first?.id)
    let task = try #require(try await queue.task(id))
    #expect(try await task.cancel())
    #expect(try await queue.tasks().map { bench.hoursFromStart(to: $0.availableDate) } == [2])
    // Another program cancels the next one.
    let next = try #require(try await queue.tasks().first?.id)
    let change = TaskChange.cancel(.unclaimed(next), at: bench.start, retains: false)
    _ = try await store.apply([change], durability: .durable)
    try await queue.schedule("s", .hours, Note("b"))
    #expect(try await queue.tasks().map { bench.hoursFromStart(to: $0.availableDate) } == [3])
    #expect(try await queue.tasks().map { try $0.payload(as: Note.self) } == [Note("b")])
  }

  @Test func `an occurrence that replaces one covers the dates of that one, too`() async throws {
    let queue = await bench.makeQueue(on: InMemoryStore())
    try await queue.schedule("s", .hours, Note("takes 1"))
    let id = try #require(try await queue.tasks().first?.id)
    try await queue.reschedule(id, to: bench.start + 3.5 * 3_600)
    let events = queue.events
    async let texts = bench.scheduleTexts(in: events)
    try await withRunning(queue) { try await bench.advance(hours: 5) }
    // While the first occurrence runs from 3:30 to 4:30, the one for 3:00 is replaced.
    #expect(bench.log.entries.map(\.date).prefix(2) == [1, 4])
    #expect(bench.log.entries.map(\.missed).prefix(2) == [0, 2])
    #expect(await texts.prefix(2) == ["s: 1 made up for", "s: 1 made up for"])
  }
}
