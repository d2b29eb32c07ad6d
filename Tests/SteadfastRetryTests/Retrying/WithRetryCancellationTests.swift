import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastRetry

@Suite(.timeLimit(.minutes(5))) struct WithRetryCancellationTests {
  private let clock = VirtualClock()
  private let attempts = Log<Int>()
  private let policy = RetryPolicy.attempts(5, backoff: .constant(.seconds(60)))

  @Test func `a sleep of 60 s ends without the clock moving, and no attempt follows`() async throws
  {
    let outcome = try await outcome { [policy, clock, attempts] in
      try await withRetry(policy, clock: clock) {
        attempts.add(1)
        throw Offline()
      }
    } while: { cancel in
      try await clock.waitForSleepers(count: 1)
      cancel()
    }
    #expect(throws: CancellationError.self) { try outcome.get() }
    #expect(attempts.count == 1)
    #expect(clock.now == VirtualClock.Instant())
    #expect(clock.pendingSleeps.isEmpty)
  }

  @Test func `a type of error that can't hold CancellationError gets the last error`() async throws
  {
    let outcome = try await outcome { [policy, clock, attempts] () async throws(Offline) in
      try await withRetry(policy, clock: clock) { () async throws(Offline) in
        attempts.add(1)
        throw Offline(attempt: 7)
      }
    } while: { cancel in
      try await clock.waitForSleepers(count: 1)
      cancel()
    }
    #expect(throws: Offline(attempt: 7)) { try outcome.get() }
    #expect(attempts.count == 1)
    #expect(clock.now == VirtualClock.Instant())
  }

  @Test func `the token of a retry that was not made is given back`() async throws {
    let budget = RetryBudget(capacity: 3, retriesPerSuccess: 0)
    let outcome = try await outcome { [policy, clock] in
      try await withRetry(policy, clock: clock, budget: budget) { throw Offline() }
    } while: { cancel in
      try await clock.waitForSleepers(count: 1)
      #expect(budget.tokens == 2)
      cancel()
    }
    #expect(throws: CancellationError.self) { try outcome.get() }
    #expect(budget.tokens == 3)
  }

  @Test func `a task that is cancelled already makes its first attempt, and no decision`()
    async throws
  {
    let outcome = try await outcome { [attempts] in
      cancelThisTask()
      try await withRetry(.attempts(5, backoff: .immediate)) {
        attempts.add(1)
        throw Offline()
      } shouldRetry: { _, _ in
        Issue.record("There is nothing to decide.")
        return .retry
      }
    } while: { _ in
    }
    #expect(throws: CancellationError.self) { try outcome.get() }
    #expect(attempts.count == 1)
  }

  @Test func `a success is a success, cancelled or not`() async throws {
    let outcome = try await outcome {
      cancelThisTask()
      return await withRetry { 42 }
    } while: { _ in
    }
    #expect(outcome == .success(42))
  }

  @Test func `no attempt follows a sleep that did not notice the cancellation`() async throws {
    let outcome = try await outcome { [attempts] in
      try await withRetry(.attempts(5), clock: InstantClock()) {
        attempts.add(1)
        throw Offline()
      } shouldRetry: { _, _ in
        cancelThisTask()
        return .retry
      }
    } while: { _ in
    }
    #expect(throws: CancellationError.self) { try outcome.get() }
    #expect(attempts.count == 1)
  }

  @Test(arguments: [Duration(attoseconds: .max), .seconds(Int64.max), .seconds(Int64(1) << 40)])
  func `a sleep of longer than the system's clock can count does not trap`(
    delay: Duration
  ) async throws {
    let outcome = try await outcome {
      try await withRetry(.attempts(2)) {
        throw Offline()
      } shouldRetry: { _, _ in
        cancelThisTask()
        return .retry(after: delay)
      }
    } while: { _ in
    }
    #expect(throws: CancellationError.self) { try outcome.get() }
  }
}
