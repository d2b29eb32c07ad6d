import Foundation
import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

/// Tests schedules and their successive occurrences.
@Suite(.virtualTime) struct ScheduleTests {
  let bench: ScheduleBench

  init() throws { bench = try ScheduleBench() }

  private func occasions(atHours hours: ClosedRange<Int>, text: String = "a") -> [Occasion] {
    hours.map { Occasion(text: text, date: Double($0), now: Double($0)) }
  }

  @Test(arguments: StoreKind.allCases)
  func `a schedule's task is performed at each date of the rule`(kind: StoreKind) async throws {
    try await kind.withStore { store in
      let queue = await bench.makeQueue(on: store)
      try await queue.schedule("hourly", .hours, Note("a"))
      try await withRunning(queue) { try await bench.advance(hours: 5.5) }
      #expect(bench.log.entries == occasions(atHours: 1...5))
      let tasks = try await queue.tasks()
      #expect(tasks.map { bench.hoursFromStart(to: $0.availableDate) } == [6])
      #expect(tasks.map { $0.id.occurrenceDate.map(bench.hoursFromStart) } == [6])
    }
  }

  @Test(arguments: StoreKind.allCases)
  func `a new queue on the same store continues the schedule`(kind: StoreKind) async throws {
    try await kind.withStore { store in
      let first = await bench.makeQueue(on: store)
      let options = TaskOptions(tags: ["t"], metadata: ["tenant": "eins"])
      try await first.schedule("hourly", .hours, Note("a"), options: options)
      try await withRunning(first) { try await bench.advance(hours: 2.5) }
      let second = await bench.makeQueue(on: store)
      try await withRunning(second) { try await bench.advance(hours: 2) }
      #expect(bench.log.entries == occasions(atHours: 1...4))
      #expect(try await second.tasks().map(\.tags) == [["t"]])
      #expect(try await second.tasks().map(\.metadata) == [["tenant": "eins"]])
    }
  }

  @Test func `a reopened file still has its schedules`() async throws {
    try await withTemporaryFolder { folder in
      let file = folder.appending(path: "queue.jsonl")
      for hours in 0..<3 {
        let store = JSONFileStore(at: file)
        let queue = await bench.makeQueue(on: store)
        if hours == 0 { try await queue.schedule("hourly", .hours, Note("a")) }
        try await withRunning(queue) { try await bench.advance(hours: 1.5) }
        try await store.close()
      }
      #expect(bench.log.entries == occasions(atHours: 1...4))
    }
  }

  @Test func `making the same schedule at each launch changes nothing`() async throws {
    let store = FaultInjectingStore(appliesAtOnce: true)
    let queue = await bench.makeQueue(on: store)
    func schedule() async throws {
      try await queue.schedule(
        "s",
        .cron("*/5 * * * *", in: .gmt),
        Note("a"),
        missed: .each(atMost: 3),
        spread: .seconds(60),
        options: TaskOptions(
          maxRetries: 3,
          priority: .high,
          tags: ["x", "y"],
          metadata: ["b": "2", "a": "1"]
        )
      )
    }
    try await schedule()
    let tasks = try await queue.tasks().map(\.id)
    let count = store.calls.count { $0.kind == .apply }
    try await bench.advance(hours: 0.02)
    try await schedule()
    #expect(try await queue.tasks().map(\.id) == tasks)
    #expect(store.calls.count { $0.kind == .apply } == count)
  }

  @Test func `a changed schedule starts at its next date rather than at once`()
    async throws
  {
    let store = InMemoryStore()
    let first = await bench.makeQueue(on: store)
    try await first.schedule("s", .every(.seconds(7_200)), Note("old"))
    try await withRunning(first) { try await bench.advance(hours: 5) }
    let queue = await bench.makeQueue(on: store)
    #expect(bench.log.entries.map(\.date) == [2, 4])
    // The new rule continues from the last date, 4 hours after the start.
    try await queue.schedule("s", .every(.seconds(2_400)), Note("new"))
    let hours = try await queue.tasks().map { bench.hoursFromStart(to: $0.availableDate) }
    #expect(hours == [16.0 / 3])
    let next = try await queue.occurrences(of: "s", count: 2).map(bench.hoursFromStart)
    #expect(next == [16.0 / 3, 6])
    try await withRunning(queue) { try await bench.advance(hours: 0.5) }
    #expect(bench.log.entries.last?.text == "new")
    #expect(bench.log.entries.count == 3)
  }

  @Test func `changing a schedule doesn't affect its running occurrence`() async throws {
    let queue = await bench.makeQueue(on: InMemoryStore())
    try await queue.schedule("s", .hours, Note("takes 1.5"))
    try await withRunning(queue) {
      try await bench.advance(hours: 1.2)
      try await queue.schedule("s", .hourly(minute: 45), Note("new"))
      #expect(try await queue.tasks().map(\.state) == [.running, .waiting])
      try await bench.advance(hours: 1.6)
    }
    // When the old occurrence ends, the first new date has passed, and is made up for.
    #expect(bench.log.entries.map(\.text) == ["takes 1.5", "new", "new"])
    #expect(bench.log.entries.map(\.date) == [1, 1.75, 2.75])
    #expect(bench.log.entries.map { ($0.now * 4).rounded() } == [4, 10, 11])
  }

  @Test func `changing a schedule doesn't affect an occurrence that waits for a retry`()
    async throws
  {
    let queue = await bench.makeQueue(on: InMemoryStore())
    try await queue.schedule("s", .hours, Note("retries"))
    try await withRunning(queue) {
      try await bench.advance(hours: 1.01)
      try await queue.schedule("s", .hourly(minute: 30), Note("new"))
      try await bench.advance(hours: 0.6)
    }
    #expect(bench.log.entries.map(\.text) == ["retries", "retries", "new"])
    #expect(bench.log.entries.map(\.date) == [1, 1, 1.5])
  }

  @Test func `removing a schedule removes its waiting occurrence`() async throws {
    let store = InMemoryStore()
    let queue = await bench.makeQueue(on: store)
    try await queue.schedule("s", .hours, Note("a"))
    try await queue.schedule("other", .hours, Note("b"))
    #expect(try await queue.unschedule("s"))
    #expect(try await queue.unschedule("s") == false)
    #expect(try await queue.schedules().map(\.name) == ["other"])
    #expect(try await queue.unschedule("other"))
    #expect(try await queue.tasks().isEmpty)
    #expect(try await queue.occurrences(of: "s", count: 3) == [])
    try await queue.schedule("s", .hours, Note("c"))
    try await withRunning(queue) { try await bench.advance(hours: 1.5) }
    #expect(bench.log.entries == occasions(atHours: 1...1, text: "c"))
  }

  @Test func `after a schedule is removed, no occurrence follows the running occurrence`()
    async throws
  {
    let queue = await bench.makeQueue(on: InMemoryStore())
    try await queue.schedule("s", .hours, Note("takes 0.5"))
    try await withRunning(queue) {
      try await bench.advance(hours: 1.2)
      #expect(try await queue.unschedule("s"))
      try await bench.advance(hours: 3)
    }
    #expect(bench.log.entries.count == 1)
    #expect(try await queue.tasks(matching: TaskFilter()).isEmpty)
  }

  @Test func `schedules are listed with their next dates`() async throws {
    let queue = await bench.makeQueue(on: InMemoryStore())
    try await queue.schedule("b", .every(.seconds(60)), Note("a"))
    let berlin = try zone("Europe/Berlin")
    try await queue.schedule("a", .daily(at: .time(2, 30), in: berlin), Note("a"))
    let list = try await queue.schedules()
    #expect(list.map(\.name) == ["a", "b"])
    #expect(list.map(\.rule) == ["daily 02:30 (Europe/Berlin)", "every 60 s"])
    #expect(list.map(\.taskName) == ["Note", "Note"])
    #expect(list.map { bench.hoursFromStart(to: $0.date) } == [1.5, 1.0 / 60])
    #expect(Set(list.map(\.occurrence)) == Set(try await queue.tasks().map(\.id)))
    #expect(
      try await queue.occurrences(of: "a", count: 3).map(bench.hoursFromStart) == [1.5, 25.5, 49.5]
    )
  }

  @Test
  func `the spread delay differs between installations, but each installation's delay is constant`()
    async throws
  {
    var delays: Set<Int> = []
    for seed in 0..<20 as Range<UInt64> {
      let queue = TaskQueue(
        persistence: InMemoryStore(),
        configuration: TaskQueueConfiguration(randomness: .seeded(seed)),
        clock: bench.clock
      )
      try await queue.schedule("s", .hours, Note("a"), spread: .seconds(600))
      let task = try #require(try await queue.tasks().first)
      let delay = Int(task.availableDate.timeIntervalSince(bench.start)) - 3_600
      #expect((0...600).contains(delay))
      #expect(try await queue.occurrences(of: "s", count: 1).map(bench.hoursFromStart) == [1])
      try await queue.schedule("s", .hourly(minute: 30), Note("a"), spread: .seconds(600))
      let next = try #require(try await queue.tasks().first)
      #expect(Int(next.availableDate.timeIntervalSince(bench.start)) - 1_800 == delay)
      delays.insert(delay)
    }
    #expect(delays.count > 10)
  }

  @Test func `invalid arguments of a schedule are rejected`() async throws {
    let queue = await bench.makeQueue(on: InMemoryStore())
    func errorOfScheduling(named name: String, options: TaskOptions) async -> TaskQueueError? {
      await #expect(throws: TaskQueueError.self) {
        try await queue.schedule(name, .hours, Note("a"), options: options)
      }
    }
    for (options, text) in [
      (TaskOptions(delay: .seconds(1)), "'delay'"),
      (TaskOptions(availableDate: bench.start), "'availableDate'"),
      (TaskOptions(expiryDate: bench.start), "'expiryDate'"),
      (TaskOptions(onDuplicate: .replace), "'onDuplicate'"),
      (TaskOptions(maxRetries: -1), "maxRetries"),
    ] {
      #expect(await errorOfScheduling(named: "s", options: options)?.message.contains(text) == true)
    }
    for name in ["", "a\nb", String(repeating: "x", count: 256)] {
      let error = await errorOfScheduling(named: name, options: TaskOptions())
      #expect(error?.code == .invalidArgument)
    }
    for missed in [MissedOccurrences.each(atMost: 0), .once(within: .milliseconds(999))] {
      await #expect(throws: TaskQueueError.self) {
        try await queue.schedule("s", .hours, Note("a"), missed: missed)
      }
    }
    for count in [64_500, 65_300, 70_000] {
      let note = Note(String(repeating: "x", count: count))
      let error = await #expect(throws: TaskQueueError.self) {
        try await queue.schedule("s", .hours, note)
      }
      #expect(error?.code == .invalidArgument)
    }
    #expect(try await queue.schedules().isEmpty)
  }

  @Test func `a schedule ignores unique keys`() async throws {
    struct Keyed: TaskPayload { var uniqueKey: String? { "key" } }
    let queue = await bench.makeQueue(on: InMemoryStore())
    try await queue.enqueue(Keyed(), delay: .seconds(86_400))
    try await queue.schedule("s", .hours, Keyed())
    #expect(try await queue.tasks().map(\.uniqueKey) == ["key", nil])
  }
}
