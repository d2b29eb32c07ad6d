import Foundation
import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

/// Tests rate limits of queues.
@Suite(.virtualTime) struct RateLimitTests {
  struct Mail: TaskPayload {
    static let taskName = "Mail"
    var account = 0
  }

  let time: VirtualTime
  /// The label of each attempt, and the second at which the attempt started.
  let log = Log<(label: String, second: Double)>()
  var clock: VirtualClock { time.clock }

  init() throws { time = try #require(VirtualTime.current) }

  func makeQueue(
    limits: [RateLimit],
    on store: any Persistence = InMemoryStore(),
    workers: Int = 4,
    clock other: (any WallClock)? = nil,
    takes seconds: Double = 0
  ) async -> TaskQueue {
    func makeQueueWithoutHandlers(clock: some WallClock) -> TaskQueue {
      TaskQueue(
        persistence: store,
        configuration: TaskQueueConfiguration(maxConcurrentTasks: workers, rateLimits: limits),
        clock: clock
      )
    }
    let queue =
      other.map { makeQueueWithoutHandlers(clock: $0) }
      ?? makeQueueWithoutHandlers(clock: clock)
    await queue.register(Mail.self) { [log, clock = time.clock] mail, _ in
      log.add(("mail \(mail.account)", clock.now.offset / .seconds(1)))
      if seconds > 0 { try await clock.sleep(for: .seconds(seconds)) }
    }
    await queue.register(Note.self) { [log, clock = time.clock] note, _ in
      log.add((note.text, clock.now.offset / .seconds(1)))
    }
    return queue
  }

  func startSeconds(labelled label: String) -> [Double] {
    log.entries.filter { $0.label == label }.map(\.second)
  }

  func makeMails(count: Int, account: Int = 0) -> [Mail] {
    Array(repeating: Mail(account: account), count: count)
  }

  @Test func `each second has exactly as many starts as its limit allows`() async throws {
    let queue = await makeQueue(limits: [.atMost(3, per: .seconds(1))])
    let tasks = try await queue.enqueue(contentsOf: makeMails(count: 10))
    try await withRunning(queue) {
      for task in tasks {
        let outcome = try await task.outcome()
        #expect(outcome == .succeeded)
      }
    }
    #expect(startSeconds(labelled: "mail 0") == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3])
  }

  @Test func `a limit applies to every interval of its length rather than only to fixed intervals`()
    async throws
  {
    let queue = await makeQueue(limits: [.atMost(4, per: .seconds(10))])
    try await withRunning(queue) {
      try await queue.enqueue(Mail())
      try await clock.sleep(for: .seconds(9))
      let tasks = try await queue.enqueue(contentsOf: makeMails(count: 8))
      for task in tasks { _ = try await task.outcome() }
    }
    #expect(startSeconds(labelled: "mail 0") == [0, 9, 9, 9, 10, 19, 19, 19, 20])
  }

  @Test func `a limit of one name doesn't delay other names, and long attempts don't delay starts`()
    async throws
  {
    let limits: [RateLimit] = [.atMost(1, per: .seconds(60), of: Mail.self)]
    let queue = await makeQueue(limits: limits, takes: 1_000)
    let tasks = try await queue.enqueue(contentsOf: makeMails(count: 3))
    let notes = try await queue.enqueue(contentsOf: [Note("a"), Note("b")])
    try await withRunning(queue) {
      for task in tasks + notes { _ = try await task.outcome() }
    }
    #expect(startSeconds(labelled: "mail 0") == [0, 60, 120])
    #expect(startSeconds(labelled: "a") == [0] && startSeconds(labelled: "b") == [0])
  }

  @Test func `each key has its own limit, and doesn't delay other keys`() async throws {
    let limit = RateLimit.atMost(2, per: .seconds(60), of: Mail.self, key: \.account)
    let queue = await makeQueue(limits: [limit], workers: 1)
    let mails = makeMails(count: 5, account: 1) + makeMails(count: 3, account: 2)
    let tasks = try await queue.enqueue(contentsOf: mails)
    let events = queue.events
    try await withRunning(queue) {
      for task in tasks { _ = try await task.outcome() }
    }
    #expect(startSeconds(labelled: "mail 1") == [0, 0, 60, 60, 120])
    #expect(startSeconds(labelled: "mail 2") == [0, 0, 60])
    var rescheduled: [TaskID] = []
    for await event in events {
      if case .rescheduled(let id, _) = event { rescheduled.append(id) }
    }
    // The last task of the first account is postponed twice.
    #expect(Set(rescheduled).count == 4 && rescheduled.count == 5)
  }

  private struct Export: TaskPayload {
    var account = "ada"
    var number: Int
  }

  /// Performs tasks that are added over time, with a limit of one start per minute.
  ///
  /// - Returns: The numbers of the tasks in the order of their starts, the seconds of the starts,
  ///   and how often tasks were postponed.
  private func performExports(
    workers: Int = 8,
    for duration: Duration,
    adding addTasks: @escaping @Sendable (TaskQueue) async throws -> Void
  ) async throws -> (numbers: [Int], seconds: [Double], postponedCount: Int) {
    let limit = RateLimit.atMost(1, per: .seconds(60), of: Export.self, key: \.account)
    let queue = await makeQueue(limits: [limit], workers: workers)
    await queue.register(Export.self) { [log, clock] export, _ in
      log.add(("\(export.number)", clock.now.offset / .seconds(1)))
    }
    let events = queue.events
    try await withRunning(queue) {
      try await addTasks(queue)
      try await clock.sleep(for: duration - clock.now.offset)
    }
    var postponedCount = 0
    for await event in events { if case .rescheduled = event { postponedCount += 1 } }
    return (log.entries.compactMap { Int($0.label) }, log.entries.map(\.second), postponedCount)
  }

  @Test func `among tasks with the same key, the highest priority starts first`() async throws {
    let begun = try await performExports(for: .seconds(300)) { [clock] queue in
      let backlog = (0..<20).map { Export(number: $0) }
      try await queue.enqueue(contentsOf: backlog, options: TaskOptions(priority: .low))
      try await clock.sleep(for: .seconds(90))
      try await queue.enqueue(Export(number: 99), priority: .high)
    }
    #expect(begun.numbers == [0, 1, 99, 2, 3])
  }

  @Test(arguments: [false, true])
  func `starts reserved for cancelled tasks become available to others`(areRemoved: Bool)
    async throws
  {
    let begun = try await performExports(for: .seconds(3_600)) { [clock] queue in
      try await queue.enqueue(contentsOf: (0..<200).map { Export(number: $0) })
      try await clock.sleep(for: .seconds(90))
      // The last ten remain.
      let ids = Set(try await queue.tasks().sorted { $0.id < $1.id }.dropLast(10).map(\.id))
      let filter = TaskFilter(ids: ids)
      _ =
        areRemoved
        ? try await queue.remove(matching: filter) : try await queue.cancel(matching: filter)
      try await queue.enqueue(Export(number: 999))
    }
    #expect(begun.numbers == [0, 1, 999] + Array(190..<200))
    // The postponed tasks are retried at least once in 32 starts.
    #expect(begun.seconds[3] <= 35 * 60)
  }

  @Test(arguments: [1, 8])
  func `many tasks with the same key start in order, without a gap`(workers: Int) async throws {
    let count = 300
    let begun = try await performExports(workers: workers, for: .seconds(60 * count)) { queue in
      try await queue.enqueue(contentsOf: (0..<count).map { Export(number: $0) })
    }
    #expect(begun.numbers == Array(0..<count))
    #expect(begun.seconds.map { $0.rounded() } == (0..<count).map { Double($0) * 60 })
    #expect(begun.postponedCount < count * 12)
  }

  @Test func `retries count as starts`() async throws {
    let queue = await makeQueue(limits: [.atMost(2, per: .seconds(10))])
    await queue.register(name: "fails") { [log, clock = time.clock] _, context in
      log.add(("try", clock.now.offset / .seconds(1)))
      if context.retryCount < 3 { throw Failing() }
    }
    let task = try await queue.enqueue(name: "fails", "x", options: TaskOptions(usesBackoff: false))
    try await withRunning(queue) {
      let outcome = try await task.outcome()
      #expect(outcome == .succeeded)
    }
    #expect(startSeconds(labelled: "try") == [0, 0, 10, 10])
  }

  private struct Failing: Error {}

  @Test func `a pass performs only tasks that the limit allows to start now`() async throws {
    let queue = await makeQueue(limits: [.atMost(3, per: .seconds(60))])
    try await queue.enqueue(contentsOf: makeMails(count: 5))
    #expect(try await queue.runAvailable() == 3)
    #expect(try await queue.runAvailable() == 0)
    clock.advance(by: .seconds(60))
    #expect(try await queue.runAvailable() == 2)
  }

  // MARK: Snoozing a limit

  @Test func `snoozing a limit pauses all its tasks, without counting an attempt`()
    async throws
  {
    let queue = await makeQueue(limits: [.atMost(5, per: .seconds(1), named: "api")], workers: 1)
    await queue.register(name: "api") { [log, clock = time.clock] value, context in
      log.add(("api \(context.retryCount)", clock.now.offset / .seconds(1)))
      if clock.now.offset < .seconds(30) { throw TaskSnoozed(for: .seconds(30), scope: .rateLimit) }
    }
    let first = try await queue.enqueue(name: "api", 1)
    let second = try await queue.enqueue(name: "api", 2)
    let other = try await queue.enqueue(Note("other"))
    try await withRunning(queue) {
      for task in [first, second, other] {
        let outcome = try await task.outcome()
        #expect(outcome == .succeeded)
      }
    }
    #expect(startSeconds(labelled: "api 0") == [0, 30, 30])
    #expect(startSeconds(labelled: "other") == [0])
  }

  @Test func `a snooze affects only its own task if no limit or scope matches`()
    async throws
  {
    for (limits, scope) in [
      ([RateLimit.atMost(5, per: .seconds(1), named: "other")], TaskSnoozed.Scope.rateLimit),
      ([.atMost(5, per: .seconds(1))], .task), ([], .rateLimit),
    ] {
      let queue = await makeQueue(limits: limits)
      let begin = clock.now
      await queue.register(name: "api") { [clock = time.clock] value, context in
        if clock.now == begin, value == 1 { throw TaskSnoozed(for: .seconds(30), scope: scope) }
      }
      let first = try await queue.enqueue(name: "api", 1)
      let second = try await queue.enqueue(name: "api", 2)
      try await withRunning(queue) {
        let early = try await second.outcome()
        #expect(early == .succeeded && clock.now == begin)
        let late = try await first.outcome()
        #expect(late == .succeeded && clock.now > begin)
      }
    }
  }

  // MARK: Reporting

  @Test func `events and statistics report an exhausted limit`() async throws {
    let queue = await makeQueue(limits: [.atMost(2, per: .seconds(60), of: Mail.self)])
    let events = queue.events
    let tasks = try await queue.enqueue(contentsOf: makeMails(count: 5))
    try await withRunning(queue) {
      for task in tasks { _ = try await task.outcome() }
    }
    var reported: [String] = []
    for await event in events {
      guard case .rateLimited(let limit, let date) = event else { continue }
      #expect(event.taskID == nil)
      reported.append("\(limit) until \(date.timeIntervalSinceReferenceDate)")
    }
    #expect(reported == ["60.0", "120.0"].map { "2 per 60.0 seconds of Mail until \($0)" })
    #expect(try await queue.statistics.rateLimited == 2)
  }
}
