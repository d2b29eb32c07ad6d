import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// A handler that logs its calls, and returns the configured values.
private struct StubHandler: TaskHandler {
  let log: Log<String>
  let clock: VirtualClock
  var error: (any Error)? = Refusal()
  var restarts = 0
  var delay: Double?

  func perform(_ note: Note, in context: TaskContext) async throws {
    log.add("\(clock.now.offset): attempt \(context.retryCount + 1)")
    if let error { throw error }
  }

  func retryDate(
    of note: Note,
    after error: any Error,
    proposed date: Date,
    in context: TaskContext
  ) async -> Date {
    log.add("proposed \(date.timeIntervalSince(clock.date)) s")
    return delay.map { clock.date + $0 } ?? date
  }

  func shouldRestart(_ note: Note, after error: any Error, in context: TaskContext) async -> Bool {
    log.add("exhausted: \(error)")
    return log.entries.count { $0.hasPrefix("exhausted") } <= restarts
  }

  func willEnd(_ note: Note, outcome: TaskOutcome, in context: TaskContext) async {
    log.add("leaves: \(outcome)")
  }
}

@Suite(.virtualTime, .timeLimit(.minutes(5))) struct TaskHandlerTests {
  private let clock: VirtualClock
  private let log = Log<String>()

  init() throws { clock = try #require(VirtualTime.current).clock }

  private func performTask(
    with handler: StubHandler,
    maxRetries: RetryLimit = 1,
    usesBackoff: Bool = true
  ) async throws {
    let configuration = TaskQueueConfiguration(
      backoff: .exponential(from: .seconds(10), multiplier: 2)
    )
    let queue = TaskQueue(configuration: configuration, clock: clock)
    await queue.register(handler: handler)
    let task = try await queue.enqueue(
      Note("a"),
      maxRetries: maxRetries,
      usesBackoff: usesBackoff
    )
    try await withRunning(queue) { _ = try await task.outcome() }
  }

  @Test func `the handler can change the date of a retry, and is notified that the task ends`()
    async throws
  {
    try await performTask(with: StubHandler(log: log, clock: clock, delay: 3))
    #expect(
      log.entries == [
        "0.0 seconds: attempt 1", "proposed 10.0 s", "3.0 seconds: attempt 2",
        "exhausted: refused", "leaves: abandoned: refused",
      ]
    )
  }

  @Test func `the handler is also notified when a task succeeds`() async throws {
    try await performTask(with: StubHandler(log: log, clock: clock, error: nil))
    #expect(log.entries == ["0.0 seconds: attempt 1", "leaves: succeeded"])
  }

  @Test func `the handler isn't asked for a date if the task doesn't use backoff`() async throws {
    try await performTask(with: StubHandler(log: log, clock: clock, delay: 3), usesBackoff: false)
    #expect(!log.entries.contains { $0.hasPrefix("proposed") })
    #expect(clock.now.offset == .zero)
  }

  @Test func `the handler can restart a task that has used up its retries`() async throws {
    try await performTask(with: StubHandler(log: log, clock: clock, restarts: 1))
    #expect(
      log.entries == [
        "0.0 seconds: attempt 1", "proposed 10.0 s", "10.0 seconds: attempt 2",
        "exhausted: refused", "proposed 10.0 s", "20.0 seconds: attempt 1", "proposed 10.0 s",
        "30.0 seconds: attempt 2", "exhausted: refused", "leaves: abandoned: refused",
      ]
    )
  }

  @Test func `the handler isn't asked to restart a task that was abandoned on purpose`()
    async throws
  {
    let handler = StubHandler(log: log, clock: clock, error: TaskAbandoned("no"), restarts: 9)
    try await performTask(with: handler)
    #expect(log.entries == ["0.0 seconds: attempt 1", "leaves: abandoned: no"])
  }

  @Test func `the task is abandoned at once if the handler chooses a date after the expiry`()
    async throws
  {
    let queue = TaskQueue(clock: clock)
    await queue.register(handler: StubHandler(log: log, clock: clock, delay: 3_600))
    let options = TaskOptions(expiryDate: clock.date + 60)
    let task = try await queue.enqueue(Note("a"), options: options)
    let outcome = try await withRunning(queue) { try await task.outcome() }
    #expect(outcome == .abandoned(reason: "refused"))
    #expect(clock.now.offset == .zero)
  }

  @Test func `an invalid date chosen by the handler is ignored`() async throws {
    try await performTask(with: StubHandler(log: log, clock: clock, delay: .nan))
    #expect(clock.now.offset == .seconds(10))
  }

  @Test func `a retry date in the past makes the task retry at once, without starving other tasks`()
    async throws
  {
    let queue = TaskQueue(clock: clock)
    await queue.register(handler: StubHandler(log: log, clock: clock, delay: -1_000_000))
    await queue.register(name: "Other") { [log] _, _ in log.add("other") }
    let stubborn = try await queue.enqueue(Note("a"), maxRetries: 1)
    try await queue.enqueue(name: "Other")
    try await queue.enqueue(name: "Other")
    try await withRunning(queue) { _ = try await stubborn.outcome() }
    #expect(
      log.entries.filter { $0 == "other" || $0.contains("attempt") } == [
        "0.0 seconds: attempt 1", "other", "other", "0.0 seconds: attempt 2",
      ]
    )
  }

  @Test func `the handler isn't asked for a date if the error sets the delay`() async throws {
    struct Throttled: RetryAwareError {
      var retryDecision: RetryDecision { .retry(after: .seconds(7)) }
    }
    try await performTask(with: StubHandler(log: log, clock: clock, error: Throttled(), delay: 3))
    #expect(!log.entries.contains { $0.hasPrefix("proposed") })
    #expect(clock.now.offset == .seconds(7))
  }

  /// Ends a running task with a call.
  private func endRunningTask(
    _ body: @Sendable (EnqueuedTask, TaskQueue) async throws -> Void
  ) async throws {
    let queue = TaskQueue(
      configuration: TaskQueueConfiguration(cancelledRetention: .forever),
      clock: clock
    )
    await queue.register(handler: Sleeping(log: log, clock: clock))
    let task = try await queue.enqueue(Note("a"))
    try await withRunning(queue) {
      try await clock.sleep(for: .seconds(1))
      try await body(task, queue)
      #expect(try await task.outcome() == .cancelled)
    }
    #expect(clock.now.offset == .seconds(1))
  }

  @Test func `the handler is notified when a running task is cancelled`() async throws {
    try await endRunningTask { task, queue in
      #expect(try await task.cancel())
      _ = try await task.outcome()
      #expect(try await queue.tasks(matching: TaskFilter()).map(\.state) == [.cancelled])
    }
    #expect(log.entries == ["leaves: cancelled"])
  }

  @Test func `the handler is notified when a running task is removed`() async throws {
    try await endRunningTask { task, queue in
      #expect(try await queue.remove(task.id))
      _ = try await task.outcome()
      #expect(try await queue.count(matching: TaskFilter()) == 0)
    }
    #expect(log.entries == ["leaves: cancelled"])
  }

  @Test func `the handler isn't notified when a waiting task ends`() async throws {
    let queue = TaskQueue(clock: clock)
    await queue.register(handler: StubHandler(log: log, clock: clock))
    let tasks = try await queue.enqueue(contentsOf: ["a", "b"].map(Note.init))
    try await queue.enqueue(Note("old"), uniqueKey: "k")
    let new = try await queue.enqueue(Note("new"), uniqueKey: "k", onDuplicate: .replace)
    try await tasks[0].cancel()
    try await queue.remove(tasks[1].id)
    try await new.cancel()
    #expect(try await queue.runAvailable() == 0)
    #expect(log.entries == [])
  }
}

/// A handler that sleeps for a minute and logs the outcomes of its tasks.
private struct Sleeping: TaskHandler {
  let log: Log<String>
  let clock: VirtualClock

  func perform(_ note: Note, in context: TaskContext) async throws {
    try await clock.sleep(for: .seconds(60))
  }

  func willEnd(_ note: Note, outcome: TaskOutcome, in context: TaskContext) async {
    log.add("leaves: \(outcome)")
  }
}
