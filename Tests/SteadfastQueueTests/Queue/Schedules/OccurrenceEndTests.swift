import Foundation
import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

/// Tests that the next occurrence follows, no matter how the previous occurrence ends.
@Suite(.virtualTime) struct OccurrenceEndTests {
  let bench: ScheduleBench

  init() throws { bench = try ScheduleBench() }

  private func taskHours(in queue: TaskQueue) async throws -> [Double] {
    try await queue.tasks().map { bench.hoursFromStart(to: $0.availableDate) }
  }

  @Test(arguments: StoreKind.allCases)
  func `the next occurrence follows a cancelled or removed occurrence`(
    kind: StoreKind
  ) async throws {
    try await kind.withStore { store in
      let queue = await bench.makeQueue(on: store)
      try await queue.schedule("s", .hours, Note("a"))
      for hour in 2...4 {
        let id = try #require(try await queue.tasks().first?.id)
        #expect(try await hour.isMultiple(of: 2) ? queue.cancel(id) : queue.remove(id))
        #expect(try await taskHours(in: queue) == [Double(hour)])
      }
      try await withRunning(queue) { try await bench.advance(hours: 4.5) }
      #expect(bench.log.entries.map(\.date) == [4])
    }
  }

  @Test func `cancelling all tasks doesn't cancel the occurrences that follow`() async throws {
    let queue = await bench.makeQueue(on: InMemoryStore())
    for name in ["s", "t", "u"] { try await queue.schedule(name, .hours, Note(name)) }
    try await queue.schedule("yearly", .cron("@yearly", in: .gmt), Note("y"))
    try await queue.enqueue(Note("plain"), delay: .seconds(60))
    #expect(try await queue.cancelAll() == 5)
    #expect(try await taskHours(in: queue).sorted() == [2, 2, 2, 2 * 365 * 24])
  }

  @Test func `the next occurrence follows an occurrence that is cancelled while it runs`()
    async throws
  {
    let queue = await bench.makeQueue(on: InMemoryStore())
    try await queue.schedule("s", .hours, Note("takes 5"))
    try await withRunning(queue) {
      try await bench.advance(hours: 1.5)
      let id = try #require(try await queue.tasks().first?.id)
      try await queue.cancel(id)
      try await bench.advance(hours: 0.1)
      #expect(try await taskHours(in: queue) == [2])
    }
  }

  @Test func `the next occurrence follows an abandoned occurrence, which can still be restarted`()
    async throws
  {
    let queue = await bench.makeQueue(on: InMemoryStore())
    try await queue.schedule("s", .hours, Note("fails"))
    try await withRunning(queue) {
      try await bench.advance(hours: 2.5)
      #expect(bench.log.entries.map(\.date) == [1, 2])
      #expect(try await taskHours(in: queue) == [3])
      #expect(try await queue.retry(matching: .deadLetters) == 2)
      try await bench.advance(hours: 0.1)
      #expect(bench.log.entries.map(\.date) == [1, 2, 1, 2])
      #expect(bench.log.entries.map(\.missed) == [0, 0, 0, 0])
      // The schedule isn't affected.
      #expect(try await taskHours(in: queue) == [3])
      try await bench.advance(hours: 1)
      #expect(bench.log.entries.map(\.date) == [1, 2, 1, 2, 3])
    }
  }

  @Test func `restarting a waiting occurrence doesn't replace it`() async throws {
    let queue = await bench.makeQueue(on: InMemoryStore())
    try await queue.schedule("s", .hours, Note("a"))
    let id = try #require(try await queue.tasks().first?.id)
    try await queue.retry(id)
    try await withRunning(queue) { try await bench.advance(hours: 1.5) }
    #expect(bench.log.entries.map(\.date) == [1])
    #expect(bench.log.entries.map(\.now) == [0])
    #expect(try await taskHours(in: queue) == [2])
  }

  @Test(arguments: [false, true])
  func `if an occurrence is missing, the next one is added when the queue runs`(
    isPast: Bool
  ) async throws {
    let store = InMemoryStore()
    let first = await bench.makeQueue(on: store)
    try await first.schedule("s", .hours, Note("a"))
    let id = try #require(try await first.tasks().first?.id)
    // This is how a program that doesn't support schedules ends an occurrence.
    _ = try await store.apply(
      [.cancel(.unclaimed(id), at: bench.start, retains: false)],
      durability: .durable
    )
    #expect(try await first.count == 0)
    if isPast { try await bench.advance(hours: 2.5) }
    let queue = await bench.makeQueue(on: store)
    try await withRunning(queue) { try await bench.advance(hours: 1.2) }
    #expect(bench.log.entries.map(\.date) == (isPast ? [2, 3] : []))
    // Making the schedule again also adds the missing occurrence.
    let next = try #require(try await queue.tasks().first?.id)
    _ = try await store.apply(
      [.cancel(.unclaimed(next), at: bench.start, retains: true)],
      durability: .durable
    )
    try await queue.schedule("s", .hours, Note("a"))
    #expect(try await queue.count == 1)
  }

  @Test func `each occurrence has the schedule's tags, metadata, options and backoff`()
    async throws
  {
    let queue = await bench.makeQueue(on: InMemoryStore())
    try await queue.schedule(
      "s",
      .hours,
      Note("a"),
      options: TaskOptions(
        maxRetries: .alwaysRetry,
        usesBackoff: false,
        timeLimit: .seconds(9),
        priority: 7,
        orderKey: "k",
        blocksOrderOnFailure: true,
        conditions: ["wifi"],
        tags: ["x"],
        metadata: ["tenant": "eins"]
      )
    )
    for _ in 0..<3 {
      let task = try #require(try await queue.tasks().first)
      #expect(task.maxRetries == .alwaysRetry && !task.usesBackoff && task.priority == 7)
      #expect(task.timeLimit == .seconds(9) && task.tags == ["x"] && task.orderKey == "k")
      #expect(task.blocksOrderOnFailure && task.conditions == ["wifi"] && task.uniqueKey == nil)
      #expect(try task.payload(as: Note.self) == Note("a"))
      #expect(task.metadata == ["tenant": "eins"])
      try await queue.remove(task.id)
    }
  }
}
