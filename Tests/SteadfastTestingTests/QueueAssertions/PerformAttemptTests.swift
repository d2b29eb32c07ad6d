import Foundation
import SteadfastTesting
import Synchronization
import Testing

@Suite(.virtualTime, .timeLimit(.minutes(5))) struct PerformAttemptTests {
  private let time: VirtualTime
  private let exact = TaskQueueConfiguration(backoff: .constant(.seconds(10)))

  init() throws { time = try #require(VirtualTime.current) }

  @Test func `an attempt whose handler returns succeeds`() async throws {
    let trace = Trace()
    let attempt = try await performAttempt(Letter("hi")) { letter, context in
      trace.note("\(letter.text), \(context.name), retry \(context.retryCount)")
    }
    #expect(attempt.ending == .succeeded)
    #expect(attempt.error == nil)
    #expect(attempt.nextDate == nil)
    #expect(trace.entries == ["hi, Letter, retry 0"])
  }

  @Test func `middleware runs around the attempt, and may not call the handler`() async throws {
    struct Refusing: TaskMiddleware {
      func perform(_ context: TaskContext, next: AttemptChain) async throws { throw Offline() }
    }
    let attempt = try await performAttempt(
      Letter("hi"),
      configuration: TaskQueueConfiguration(
        backoff: .constant(.seconds(10)),
        middleware: [Refusing()]
      )
    ) { _, _ in Issue.record("the handler was called") }
    #expect(attempt.ending == .failed(retryDate: time.clock.date + 10))
  }

  @Test func `an attempt whose handler throws is retried after the backoff`() async throws {
    let attempt = try await performAttempt(Letter("hi"), configuration: exact) { _, _ in
      try await time.clock.sleep(for: .seconds(5))
      throw Offline()
    }
    #expect(attempt.ending == .failed(retryDate: time.clock.date + 10))
    #expect(attempt.error is Offline)
    #expect(time.clock.now.offset == .seconds(5))
  }

  @Test func `the backoff grows with the retry count`() async throws {
    let configuration = TaskQueueConfiguration(
      backoff: .exponential(from: .seconds(1), multiplier: 2)
    )
    for retryCount in [0, 1, 5] {
      let attempt = try await performAttempt(
        Letter("hi"),
        retryCount: retryCount,
        configuration: configuration
      ) { _, context in
        #expect(context.retryCount == retryCount)
        throw Offline()
      }
      #expect(attempt.nextDate == time.clock.date + Double(1 << retryCount))
    }
  }

  @Test func `a retry without backoff is due at once, but only one attempt is performed`()
    async throws
  {
    let calls = Trace()
    let attempt = try await performAttempt(Letter("hi"), usesBackoff: false) { _, _ in
      calls.note("called")
      throw Offline()
    }
    #expect(attempt.ending == .failed(retryDate: time.clock.date))
    #expect(calls.entries.count == 1)
  }

  @Test
  func
    `a failing last attempt abandons the task, and the context says that the attempt is the last`()
    async throws
  {
    let attempt = try await performAttempt(Letter("hi"), retryCount: 3, maxRetries: 3) {
      _,
      context in
      #expect(context.isLastAttempt)
      throw Offline()
    }
    #expect(attempt.ending == .abandoned(reason: "Offline()"))
    #expect(attempt.error is Offline)
  }

  @Test func `a handler can abandon or postpone its task`() async throws {
    let abandoned = try await performAttempt(Letter("hi")) { _, _ in throw TaskAbandoned("spam") }
    #expect(abandoned.ending == .abandoned(reason: "spam"))
    let snoozed = try await performAttempt(Letter("hi")) { _, _ in
      throw TaskSnoozed(for: .seconds(60))
    }
    #expect(snoozed.ending == .snoozed(until: time.clock.date + 60))
    #expect(snoozed.nextDate == time.clock.date + 60)
  }

  @Test func `performAttempt() needs no handler for a PerformableTask`() async throws {
    struct Sync: PerformableTask {
      func perform(in context: TaskContext) async throws { throw TaskAbandoned("no server") }
    }
    #expect(try await performAttempt(Sync()).ending == .abandoned(reason: "no server"))
  }

  @Test func `options that the call omits come from the type, and then from the configuration`()
    async throws
  {
    let defaults = TaskOptions(
      maxRetries: 1,
      usesBackoff: false,
      priority: .high,
      tags: ["all"],
      metadata: ["a": "1"]
    )
    let configuration = TaskQueueConfiguration(
      backoff: .constant(.seconds(10)),
      taskDefaults: defaults
    )
    let tags = Trace()
    let attempt = try await performAttempt(
      Patient(),
      retryCount: 99,
      options: TaskOptions(tags: ["one"], metadata: ["b": "2"]),
      configuration: configuration
    ) { _, context in
      tags.note("\(context.tags.sorted()), \(context.priority), \(context.maxRetries)")
      tags.note("\(context.metadata.sorted { $0.key < $1.key }.map { $0.key + $0.value })")
      try await time.clock.sleep(for: .seconds(60))
    }
    #expect(tags.entries == [#"["all", "one", "type"], 10, always"#, #"["a1", "b2"]"#])
    // The type's time limit has passed, and the configuration has no backoff.
    #expect(attempt.error is CancellationError)
    #expect(attempt.ending == .failed(retryDate: time.clock.date))
    #expect(time.clock.now.offset == .seconds(30))

    let last = try await performAttempt(
      Patient(),
      retryCount: 3,
      maxRetries: 3,
      configuration: configuration
    ) { _, _ in throw Offline() }
    #expect(last.ending == .abandoned(reason: "Offline()"))
    let error = await #expect(throws: TaskQueueError.self) {
      try await performAttempt(Letter("hi"), maxRetries: .atMost(-1)) { _, _ in }
    }
    #expect(error?.code == .invalidArgument)
  }

  @Test func `performAttempt() calls retryDate, shouldRestart and willEnd of the handler`()
    async throws
  {
    let trace = Trace()
    let handler = Clerk(trace: trace)
    let failed = try await performAttempt(Letter("hi"), configuration: exact, handler: handler)
    #expect(failed.ending == .failed(retryDate: time.clock.date + 11))
    let restarted = try await performAttempt(
      Letter("again"),
      retryCount: 10,
      configuration: exact,
      handler: handler
    )
    #expect(restarted.ending == .failed(retryDate: time.clock.date + 11))
    let last = try await performAttempt(Letter("hi"), retryCount: 10, handler: handler)
    #expect(last.ending == .abandoned(reason: "Offline()"))
    #expect(trace.entries == ["hi ends: abandoned: Offline()"])
  }

  @Test func `the handler gets the payload that would be decoded after a restart`() async throws {
    _ = try await performAttempt(Forgetful(kept: 2, lost: 3)) { payload, _ in
      #expect(payload == Forgetful(kept: 2, lost: 0))
    }
    let error = await #expect(throws: QueueTestError.self) {
      try await performAttempt(Illegible()) { _, _ in Issue.record("the handler was called") }
    }
    #expect(error?.code == .unreadablePayload)
  }

  @Test func `cancelling the caller cancels the handler, which does not count as a failure`()
    async throws
  {
    await withThrowingTaskGroup { group in
      group.addTask {
        _ = try await performAttempt(Letter("hi")) { _, _ in
          try await time.clock.sleep(for: .seconds(60))
        }
      }
      await time.advance(by: .seconds(1))
      group.cancelAll()
      await #expect(throws: CancellationError.self) { try await group.next() }
    }
    #expect(time.clock.now.offset == .seconds(1))
  }
}

private struct Patient: TaskPayload {
  var options: TaskOptions {
    TaskOptions(
      delay: .seconds(5),
      maxRetries: .alwaysRetry,
      timeLimit: .seconds(30),
      conditions: ["a condition that is never set"],
      tags: ["type"]
    )
  }
}

private struct Clerk: TaskHandler {
  let trace: Trace

  func perform(_ letter: Letter, in context: TaskContext) async throws { throw Offline() }

  func retryDate(
    of letter: Letter,
    after error: any Error,
    proposed date: Date,
    in context: TaskContext
  ) async -> Date { date + 1 }

  func shouldRestart(
    _ letter: Letter,
    after error: any Error,
    in context: TaskContext
  ) async -> Bool { letter.text == "again" }

  func willEnd(_ letter: Letter, outcome: TaskOutcome, in context: TaskContext) async {
    trace.note("\(letter.text) ends: \(outcome)")
  }
}
