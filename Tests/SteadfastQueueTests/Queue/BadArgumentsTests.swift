import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// Passes invalid and extreme numbers, dates and strings to a queue.
@Suite(.virtualTime) struct BadArgumentsTests {
  private let clock: VirtualClock

  init() throws { clock = try #require(VirtualTime.current).clock }

  private static let never = Date(timeIntervalSince1970: .nan)

  // MARK: Rejected

  private typealias Enqueuing = @Sendable (TaskQueue) async throws -> EnqueuedTask

  /// Calls with an invalid option, each with the name of the option.
  private static let options: [(String, Enqueuing)] = [
    ("maxRetries", { try await $0.enqueue(Note("a"), maxRetries: -1) }),
    ("availableDate", { try await $0.enqueue(Note("a"), availableDate: BadArgumentsTests.never) }),
    (
      "availableDate",
      {
        try await $0.enqueue(
          Note("a"),
          availableDate: Date(timeIntervalSinceReferenceDate: -.infinity)
        )
      }
    ),
    (
      "expiryDate",
      { try await $0.enqueue(Note("a"), options: TaskOptions(expiryDate: BadArgumentsTests.never)) }
    ),
    (
      "expiryDate",
      { try await $0.enqueue(Note("a"), options: TaskOptions(expiryDate: .distantPast)) }
    ),
    ("timeLimit", { try await $0.enqueue(Note("a"), options: TaskOptions(timeLimit: .zero)) }),
    (
      "timeLimit",
      { try await $0.enqueue(Note("a"), options: TaskOptions(timeLimit: .seconds(-1))) }
    ),
    (
      "timeLimit",
      { try await $0.enqueue(Note("a"), options: TaskOptions(timeLimit: .seconds(Int64.max))) }
    ),
    (
      "maxRetries",
      { try await $0.enqueue(contentsOf: [Note("a")], options: TaskOptions(maxRetries: -1))[0] }
    ),
    (
      "maxRetries",
      { try await $0.enqueue(name: "a", options: TaskOptions(maxRetries: .atMost(.min))) }
    ),
  ]

  @Test(arguments: BadArgumentsTests.options.indices)
  func `an invalid option is rejected, and no task is added`(
    index: Int
  ) async throws {
    let (word, enqueue) = Self.options[index]
    let queue = TaskQueue(clock: clock)
    let error = await #expect(throws: TaskQueueError.self) { _ = try await enqueue(queue) }
    #expect(error?.code == .invalidArgument)
    #expect(error?.message.contains(word) == true)
    #expect(try await queue.count == 0)
  }

  private typealias Change = @Sendable (inout TaskQueueConfiguration) -> Void

  /// Invalid changes of the configuration, each with the name of the property.
  private static let changes: [(String, Change)] = [
    ("maxConcurrentTasks", { $0.maxConcurrentTasks = 0 }),
    ("maxConcurrentTasks", { $0.maxConcurrentTasks = .min }),
    ("maxConcurrentTasks", { $0.maxConcurrentTasks = .max }),
    ("succeededRetention", { $0.succeededRetention = Retention(maxCount: -1) }),
    ("abandonedRetention", { $0.abandonedRetention = Retention(maxAge: .seconds(-1)) }),
    ("cancelledRetention", { $0.cancelledRetention = Retention(maxCount: .min) }),
    ("taskDefaults.maxRetries", { $0.taskDefaults.maxRetries = -1 }),
    ("taskDefaults.timeLimit", { $0.taskDefaults.timeLimit = .zero }),
    ("maxInterruptions", { $0.maxInterruptions = -1 }),
    ("eventBufferSize", { $0.eventBufferSize = 0 }),
  ]

  @Test(arguments: BadArgumentsTests.changes.indices)
  func `the first call on a queue with an invalid configuration fails`(
    index: Int
  ) async throws {
    let (word, change) = Self.changes[index]
    var configuration = TaskQueueConfiguration()
    change(&configuration)
    let queue = TaskQueue(configuration: configuration, clock: clock)
    for call in [
      { try await queue.open() }, { try await queue.run() }, { _ = try await queue.runAvailable() },
      { _ = try await queue.enqueue(Note("a")) }, { _ = try await queue.count },
      { _ = try await queue.cancelAll() },
    ] as [() async throws -> Void] {
      let error = await #expect(throws: TaskQueueError.self) { try await call() }
      #expect(error?.code == .invalidArgument)
      #expect(error?.message.contains(word) == true)
    }
  }

  // MARK: Clamped

  @Test(arguments: [(Int.min, 0), (-1, 0), (0, 0), (1, 1), (Int.max, 2)])
  func `a page with a negative limit is empty`(limit: Int, count: Int) async throws {
    let queue = TaskQueue(clock: clock)
    try await queue.enqueue(contentsOf: [Note("a"), Note("b")])
    #expect(try await queue.tasks(limit: limit).count == count)
  }

  @Test(arguments: [Duration.seconds(Int64.min), .seconds(-1), .zero])
  func `shutting down with a negative limit shuts down at once`(limit: Duration) async throws {
    let queue = TaskQueue(clock: clock)
    await queue.register(Note.self) { [clock] _, _ in try await clock.sleep(for: .seconds(100)) }
    try await queue.enqueue(Note("a"))
    async let run: Void = queue.run()
    try await clock.sleep(for: .seconds(1))
    await queue.shutDown(within: limit)
    try await run
    #expect(clock.now.offset == .seconds(1))
  }

  @Test(arguments: [Duration.seconds(Int64.min), .seconds(-1), .zero])
  func `a snooze of negative length retries at once`(
    duration: Duration
  ) async throws {
    let queue = TaskQueue(clock: clock)
    let attempts = Log<Void>()
    await queue.register(Note.self) { _, _ in
      attempts.add(())
      if attempts.count == 1 { throw TaskSnoozed(for: duration) }
    }
    let task = try await queue.enqueue(Note("a"))
    let outcome = try await withRunning(queue) { try await task.outcome() }
    #expect(outcome == .succeeded)
    #expect(clock.now.offset == .zero)
  }

  @Test(arguments: [(-Double.infinity, 0.0), (-1, 0), (2, 1), (.infinity, 1)])
  func `progress is clamped to 0...1`(reported: Double, expected: Double) async throws {
    let queue = TaskQueue(clock: clock)
    await queue.register(Note.self) { _, context in
      context.report(progress: .nan)
      context.report(progress: reported)
    }
    let events = queue.events
    try await queue.enqueue(Note("a"))
    try await queue.runAvailable()
    for await event in events {
      guard case .progressed(_, let fraction) = event else { continue }
      #expect(fraction == expected)
      break
    }
  }

  // MARK: Accepted

  @Test func `blank strings and extreme numbers and dates are accepted`() async throws {
    try await withTemporaryFolder { folder in
      let url = folder.appending(path: "queue")
      let store = JSONFileStore(at: url)
      let queue = TaskQueue(persistence: store, clock: clock)
      for (text, date, priority) in [
        (" ", Date.distantPast, Int.min), ("\t", .distantFuture, .max),
        ("\u{1}\n\u{2028}\"", Date(timeIntervalSince1970: 253_402_300_799), 0),
      ] {
        try await queue.enqueue(
          name: text,
          .string(text),
          uniqueKey: "\(text)\(priority)",
          options: TaskOptions(
            availableDate: date,
            maxRetries: .atMost(.max),
            priority: TaskQueue.Priority(rawValue: priority),
            tags: [text]
          )
        )
      }
      let before = try await queue.tasks()
      try await store.close()
      let reopened = JSONFileStore(at: url)
      let second = TaskQueue(persistence: reopened, clock: clock)
      let after = try await second.tasks()
      #expect(before.map(\.id) == after.map(\.id))
      #expect(before.map(\.availableDate) == after.map(\.availableDate))
      #expect(before.map(\.name) == after.map(\.name))
      #expect(before.map(\.uniqueKey) == after.map(\.uniqueKey))
      #expect(before.map(\.priority) == after.map(\.priority))
      await second.register(name: " ") { _, _ in }
      #expect(try await second.runAvailable() == 1)
      try await reopened.close()
    }
  }

  @Test func `a snooze, a retry and a shutdown may lie in the farthest future`() async throws {
    let queue = TaskQueue(clock: clock)
    let huge = Duration.seconds(Int64.max)
    await queue.register(Note.self) { note, _ in
      if note.text == "snooze" { throw TaskSnoozed(for: huge) }
      throw Later(retryDecision: .retry(after: huge))
    }
    try await queue.enqueue(contentsOf: [Note("snooze"), Note("retry")])
    async let run: Void = queue.run()
    try await clock.sleep(for: .seconds(1))
    let dates = try await queue.tasks().map(\.availableDate)
    #expect(dates.count == 2 && dates.allSatisfy { $0 > .distantFuture })
    await queue.shutDown(within: huge)
    try await run
  }
}

private struct Later: RetryAwareError {
  let retryDecision: RetryDecision
}
