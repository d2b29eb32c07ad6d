import Foundation
import SteadfastTesting
import Synchronization
import Testing

@Suite(.virtualTime, .timeLimit(.minutes(5))) struct PerformAttemptTests {
  private let time: VirtualTime
  private let exact = TaskQueueConfiguration(backoff: .constant(.seconds(10)))

  init() throws { time = try #require(VirtualTime.current) }

  @Test func `a handler that returns has succeeded`() async throws {
    let trace = Trace()
    let attempt = try await performAttempt(Letter("hi")) { letter, context in
      trace.note("\(letter.text), \(context.name), retry \(context.retryCount)")
    }
    #expect(attempt.ending == .succeeded)
    #expect(attempt.error == nil)
    #expect(attempt.nextDate == nil)
    #expect(trace.entries == ["hi, Letter, retry 0"])
  }

  @Test func `a handler that throws has failed, and is retried after the backoff`() async throws {
    let attempt = try await performAttempt(Letter("hi"), configuration: exact) { _, _ in
      try await time.clock.sleep(for: .seconds(5))
      throw Offline()
    }
    #expect(attempt.ending == .failed(retryDate: time.clock.date + 10))
    #expect(attempt.error is Offline)
    #expect(time.clock.now.offset == .seconds(5))
  }

  @Test func `the backoff is that of the retry`() async throws {
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

  @Test func `a retry without backoff is due at once, and not performed`() async throws {
    let calls = Trace()
    let attempt = try await performAttempt(Letter("hi"), usesBackoff: false) { _, _ in
      calls.note("called")
      throw Offline()
    }
    #expect(attempt.ending == .failed(retryDate: time.clock.date))
    #expect(calls.entries.count == 1)
  }

  @Test func `the last attempt abandons, and knows that it is the last`() async throws {
    let attempt = try await performAttempt(Letter("hi"), retryCount: 3, maxRetries: 3) {
      _,
      context in
      #expect(context.isLastAttempt)
      throw Offline()
    }
    #expect(attempt.ending == .abandoned(reason: "Offline()"))
    #expect(attempt.error is Offline)
  }

  @Test func `a handler abandons and puts off`() async throws {
    let abandoned = try await performAttempt(Letter("hi")) { _, _ in throw TaskAbandoned("spam") }
    #expect(abandoned.ending == .abandoned(reason: "spam"))
    let snoozed = try await performAttempt(Letter("hi")) { _, _ in
      throw TaskSnoozed(for: .seconds(60))
    }
    #expect(snoozed.ending == .snoozed(until: time.clock.date + 60))
    #expect(snoozed.nextDate == time.clock.date + 60)
  }

  @Test func `a task that performs itself needs no handler`() async throws {
    struct Sync: PerformableTask {
      func perform(in context: TaskContext) async throws { throw TaskAbandoned("no server") }
    }
    #expect(try await performAttempt(Sync()).ending == .abandoned(reason: "no server"))
  }

  @Test func `the handler is given what a restart would leave of the payload`() async throws {
    _ = try await performAttempt(Forgetful(kept: 2, lost: 3)) { payload, _ in
      #expect(payload == Forgetful(kept: 2, lost: 0))
    }
    let error = await #expect(throws: QueueTestError.self) {
      try await performAttempt(Illegible()) { _, _ in Issue.record("the handler was called") }
    }
    #expect(error?.code == .unreadablePayload)
  }

  @Test func `cancelling the caller cancels the handler, and is not a failure`() async throws {
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
