import Foundation
import SteadfastRetry
import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

/// Tests sleeps, which suspend a task.
@Suite(.virtualTime) struct SleepTests {
  private let test: StepQueue

  init() throws { test = try StepQueue() }

  @Test func `withRetry doesn't retry the errors of a sleep and a snooze`() async throws {
    let queue = await test.makeQueue(on: InMemoryStore()) { [test] note, context in
      let policy = RetryPolicy(maxAttempts: 5, backoff: .constant(.seconds(1)))
      try await withRetry(policy, clock: test.clock) {
        test.logWithTime(note.text)
        if note.text == "sleeps" { try await context.sleep("nap", for: .seconds(60)) }
        if context.createdDate + 60 > test.clock.date { throw TaskSnoozed(for: .seconds(60)) }
      }
    }
    for text in ["sleeps", "snoozes"] {
      let task = try await queue.enqueue(Note(text), maxRetries: 0)
      async let outcome = task.outcome()
      #expect(try await VirtualTime.current?.drain(queue) == 2)
      #expect(try await outcome == .succeeded)
    }
    #expect(test.log.entries == ["0 sleeps", "60 sleeps", "60 snoozes", "120 snoozes"])
  }

  @Test(arguments: StoreKind.allCases)
  func `each step is performed once during a year of sleeps`(kind: StoreKind) async throws {
    try await kind.withStore { store in
      let queue = await test.makeQueue(on: store) { [test] _, context in
        for month in 1...12 {
          try await context.step("month", for: month) { step in test.logWithTime(step.name) }
          try await context.sleep("after \(month)", for: .seconds(30 * 86_400))
        }
      }
      let task = try await queue.enqueue(Note("a"), maxRetries: 0)
      async let outcome = task.outcome()
      #expect(try await VirtualTime.current?.drain(queue) == 13)
      #expect(try await outcome == .succeeded)
      #expect(test.log.entries == (1...12).map { "\(($0 - 1) * 30 * 86_400) month[\($0)]" })
    }
  }

  @Test(arguments: StoreKind.allCases)
  func `a suspended task has its state and date, and the attempt doesn't count`(kind: StoreKind)
    async throws
  {
    try await kind.withStore { store in
      let queue = await test.makeQueue(on: store) { _, context in
        try await context.sleep("nap", for: .seconds(100))
      }
      let events = queue.events
      let task = try await queue.enqueue(Note("a"))
      #expect(try await queue.runAvailable() == 1)
      let record = try #require(try await queue.core.storage.record(of: task.id))
      #expect(record.state == .suspended)
      #expect(record.availableDate == test.clock.date + 100)
      #expect(record.retryCount == 0)
      #expect(!record.isPostponed)
      #expect(try await queue.count(matching: TaskFilter(states: [.suspended])) == 1)
      #expect(try await queue.statistics.counts[.suspended] == 1)
      #expect(try await queue.runAvailable() == 0)
      test.clock.advance(by: .seconds(100))
      #expect(try await queue.runAvailable() == 1)
      await queue.shutDown()
      var dates: [Date?] = []
      for await case .suspended(_, let date) in events { dates.append(date) }
      #expect(dates == [record.availableDate])
    }
  }

  /// The clock moves back by less than a second, so the next pass doesn't move its cutoff back.
  @Test(arguments: [nil, 0.3])
  func `a pass ends even if a sleep or the task's expiry ends before the cutoff`(
    expiry: Double?
  ) async throws {
    let queue = await test.makeQueue(on: InMemoryStore()) { [test] _, context in
      test.logWithTime("begins")
      // Without this check, the test would not end if the pass doesn't end.
      guard test.log.entries.count < 20 else { throw TaskAbandoned("the pass doesn't end") }
      try await context.sleep("nap", for: .seconds(expiry == nil ? 0.3 : 10))
    }
    #expect(try await queue.runAvailable() == 0)
    test.clock.setDate(test.clock.date - 0.5)
    let options = TaskOptions(expiryDate: expiry.map { test.clock.date + $0 })
    let task = try await queue.enqueue(Note("a"), options: options)
    #expect(try await queue.runAvailable() == 1)
    #expect(try await queue.core.storage.record(of: task.id)?.state == .suspended)
    test.clock.advance(by: .seconds(1))
    async let outcome = task.outcome()
    #expect(try await queue.runAvailable() == (expiry == nil ? 1 : 0))
    #expect((try await outcome == .succeeded) == (expiry == nil))
  }

  @Test func `the task is suspended even if the handler catches or replaces the error`()
    async throws
  {
    let queue = await test.makeQueue(on: InMemoryStore()) { [test] note, context in
      do {
        try await context.sleep("nap", for: .seconds(10))
        test.logWithTime("\(note.text) woke")
      } catch {
        #expect(error is TaskSuspended)
        await #expect(throws: TaskSuspended.self) { try await context.step("on") { _ in } }
        switch note.text {
        case "returns": return
        case "abandons": throw TaskAbandoned("no")
        default: throw Refusal()
        }
      }
    }
    for text in ["returns", "abandons", "fails"] { try await queue.enqueue(Note(text)) }
    try await VirtualTime.current?.drain(queue)
    #expect(Set(test.log.entries) == ["10 returns woke", "10 abandons woke", "10 fails woke"])
  }

  @Test func `a sleep stores its end date rather than its duration`() async throws {
    let queue = await test.makeQueue(on: InMemoryStore()) { [test] _, context in
      try await context.sleep("nap", for: .seconds(context.retryCount == 0 ? 100 : 10_000))
      test.logWithTime("woke")
      if context.retryCount < 2 { throw Refusal() }
    }
    try await queue.enqueue(Note("a"))
    try await VirtualTime.current?.drain(queue)
    #expect(test.log.entries == ["100 woke", "160 woke", "220 woke"])
    let past = await test.makeQueue(on: InMemoryStore()) { [test] _, context in
      try await context.sleep("past", until: .distantPast)
      try await context.sleep("less than nothing", for: .seconds(-5))
      test.logWithTime("went on")
    }
    try await past.enqueue(Note("a"))
    #expect(try await past.runAvailable() == 1)
    #expect(test.log.entries.last == "220 went on")
  }

  @Test func `a suspended task doesn't occupy a worker`() async throws {
    let configuration = TaskQueueConfiguration(maxConcurrentTasks: 1)
    let queue = await test.makeQueue(
      on: InMemoryStore(),
      configuration: configuration
    ) { [test] note, context in
      if note.text == "sleeper" { try await context.sleep("nap", for: .seconds(1000)) }
      test.logWithTime(note.text)
    }
    try await withRunning(queue) { [test] in
      let sleeper = try await queue.enqueue(Note("sleeper"))
      let other = try await queue.enqueue(Note("other"))
      #expect(try await other.outcome() == .succeeded)
      #expect(try await sleeper.outcome() == .succeeded)
      #expect(test.log.entries == ["0 other", "1000 sleeper"])
    }
  }

  @Test func `a suspended task can be cancelled, paused, resumed, rescheduled and restarted`()
    async throws
  {
    let queue = await test.makeQueue(on: InMemoryStore()) { [test] note, context in
      try await context.sleep("nap", for: .seconds(1000))
      test.logWithTime(note.text)
    }
    let texts = ["cancelled", "paused", "rescheduled", "restarted", "left alone"]
    let tasks = try await queue.enqueue(contentsOf: texts.map { Note($0) })
    try await queue.runAvailable()
    #expect(try await queue.cancel(tasks[0].id))
    #expect(try await queue.core.storage.record(of: tasks[0].id) == nil)
    #expect(try await queue.pause(tasks[1].id))
    #expect(try await queue.core.storage.record(of: tasks[1].id)?.state == .paused)
    test.clock.advance(by: .seconds(100))
    #expect(try await queue.performNow(tasks[2].id))
    #expect(try await queue.core.storage.record(of: tasks[2].id)?.state == .waiting)
    #expect(try await queue.retry(tasks[3].id, forgetting: true))
    #expect(try await queue.runAvailable() == 2)
    #expect(
      try await queue.core.storage.record(of: tasks[2].id)?.availableDate == test.clock.date + 900
    )
    #expect(
      try await queue.core.storage.record(of: tasks[3].id)?.availableDate == test.clock.date + 1000
    )
    #expect(try await queue.resume(tasks[1].id))
    try await VirtualTime.current?.drain(queue)
    #expect(
      Set(test.log.entries) == [
        "1000 left alone", "1000 rescheduled", "1000 paused", "1100 restarted",
      ]
    )
  }

  @Test func `a task that sleeps past its expiry is abandoned when it expires`() async throws {
    let queue = await test.makeQueue(on: InMemoryStore()) { _, context in
      try await context.sleep("nap", for: .seconds(1000))
    }
    let options = TaskOptions(expiryDate: test.clock.date + 50)
    let task = try await queue.enqueue(Note("a"), options: options)
    try await VirtualTime.current?.drain(queue)
    #expect(try await queue.core.storage.record(of: task.id)?.state == .abandoned)
    #expect(test.clock.now.offset < .seconds(51))
  }

  @Test func `a suspended task retains its unique key and its position in the order`() async throws
  {
    let queue = await test.makeQueue(on: InMemoryStore()) { [test] note, context in
      if note.text == "first" { try await context.sleep("nap", for: .seconds(100)) }
      test.logWithTime(note.text)
    }
    let first = try await queue.enqueue(
      Note("first"),
      uniqueKey: "k",
      options: TaskOptions(orderKey: "o")
    )
    try await queue.runAvailable()
    let twin = try await queue.enqueue(Note("twin"), uniqueKey: "k")
    #expect(twin.id == first.id)
    let next = try await queue.enqueue(Note("replaces"), uniqueKey: "k", onDuplicate: .replace)
    #expect(next.id != first.id)
    try await queue.enqueue(Note("behind"), options: TaskOptions(orderKey: "o"))
    try await VirtualTime.current?.drain(queue)
    #expect(test.log.entries.first == "100 first")
    #expect(Set(test.log.entries.dropFirst()) == ["100 behind", "100 replaces"])
  }
}
