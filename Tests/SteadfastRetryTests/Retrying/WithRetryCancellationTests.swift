import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastRetry

@Suite(.timeLimit(.minutes(5))) struct WithRetryCancellationTests {
  private let clock = VirtualClock()
  private let attempts = Log<Int>()
  private let policy = RetryPolicy.attempts(5, backoff: .constant(.seconds(60)))

  @Test func `cancellation ends a delay of 60 s at once, and no attempt follows`() async throws {
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

  @Test func `if the typed error can't be a CancellationError, the last attempt's error is thrown`()
    async throws
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

  @Test func `a retry that is cancelled during its delay returns its token`() async throws {
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

  @Test func `a cancelled task makes only the first attempt, without calling shouldRetry`()
    async throws
  {
    let outcome = try await outcome { [attempts] in
      cancelThisTask()
      try await withRetry(.attempts(5, backoff: .immediate)) {
        attempts.add(1)
        throw Offline()
      } shouldRetry: { _, _ in
        Issue.record("shouldRetry was called")
        return .retry
      }
    } while: { _ in
    }
    #expect(throws: CancellationError.self) { try outcome.get() }
    #expect(attempts.count == 1)
  }

  @Test func `a success is returned even in a cancelled task`() async throws {
    let outcome = try await outcome {
      cancelThisTask()
      return await withRetry { 42 }
    } while: { _ in
    }
    #expect(outcome == .success(42))
  }

  @Test func `no attempt follows a delay whose clock has ignored the cancellation`() async throws {
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
  func `a delay that is too long for the system's clock does not trap`(
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
