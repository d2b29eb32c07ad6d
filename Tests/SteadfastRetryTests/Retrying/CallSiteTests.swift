import SteadfastRetry
import SteadfastTesting
import Testing

private final class NonSendable {
  var count = 0
}

private struct Token: ~Copyable {
  let number: Int
}

private actor Account {
  private var attempts = 0

  func attemptsUntilSuccess() async throws -> Int {
    let result = try await withRetry(.attempts(3, backoff: .immediate)) {
      attempts += 1
      if attempts < 3 { throw Offline() }
      let result = NonSendable()
      result.count = attempts
      return result
    }
    return result.count
  }
}

@MainActor private final class ViewModel {
  private(set) var titles: [String] = []

  func load() async throws {
    titles = try await withRetry(.attempts(2, backoff: .immediate)) {
      MainActor.assertIsolated()
      titles.append("loading")
      if titles.count == 1 { throw Offline() }
      return titles + ["loaded"]
    }
  }
}

/// Tests that the documented ways of calling the functions compile, and behave as documented.
@Suite(.timeLimit(.minutes(5))) struct CallSiteTests {
  private let clock = InstantClock()

  private func fetch() async throws -> Int { 42 }

  private func send() async throws(Offline) -> Int { 42 }

  @Test func `withRetry needs no argument but the operation`() async throws {
    let value = try await withRetry { try await fetch() }
    #expect(value == 42)
  }

  @Test func `a policy can be a preset, custom, or limited in time`() async throws {
    let few = try await withRetry(.attempts(5)) { try await fetch() }
    let shaped = try await withRetry(
      .attempts(
        5,
        backoff: .exponential(from: .milliseconds(100), multiplier: 2)
          .jittered(.full).capped(at: .seconds(10))
      )
    ) { try await fetch() }
    let timed = try await withRetry(.within(.seconds(30))) { try await fetch() }
    let policy = RetryPolicy(
      maxAttempts: nil,
      maxElapsedTime: .seconds(30),
      backoff: .constant(.seconds(1))
    )
    let spelled = try await withRetry(policy, clock: clock) { try await fetch() }
    let system = try await withRetry(policy, clock: SuspendingClock()) { try await fetch() }
    #expect([few, shaped, timed, spelled, system] == [42, 42, 42, 42, 42])
  }

  @Test func `shouldRetry can be a second trailing closure`() async throws {
    let value = try await withRetry(.attempts(3)) {
      try await fetch()
    } shouldRetry: { error, attempt in
      if attempt.number == 2 { return .retry(after: .seconds(7)) }
      return error is Forbidden ? .stop : .default(for: error)
    }
    #expect(value == 42)
  }

  @Test func `withRetry accepts a budget`() async throws {
    let budget = RetryBudget(capacity: 100, retriesPerSuccess: 0.1)
    #expect(try await withRetry(.attempts(3), budget: budget) { try await fetch() } == 42)
  }

  @Test func `a typed error can be caught without a cast`() async {
    do {
      try await withRetry(.attempts(2, backoff: .immediate)) { () async throws(Offline) in
        throw Offline(attempt: 7)
      }
    } catch {
      let typed: Offline = error
      #expect(typed.attempt == 7)
    }
  }

  @Test func `withRetry passes on the typed error of a function`() async {
    do throws(Offline) {
      #expect(try await withRetry(.attempts(3), operation: send) == 42)
    } catch {
      Issue.record("\(error)")
    }
  }

  @Test func `an operation that can't fail needs no try`() async {
    let value = await withRetry { 42 }
    #expect(value == 42)
  }

  @Test func `an operation can use the number of the attempt`() async throws {
    var attempts: [RetryAttempt] = []
    let number = try await withRetry(.attempts(3, backoff: .constant(.seconds(2))), clock: clock) {
      attempt in
      attempts.append(attempt)
      if attempt.number < 3 { throw Offline() }
      return attempt.number
    }
    #expect(number == 3)
    #expect(
      attempts == [
        RetryAttempt(number: 1),
        RetryAttempt(number: 2, delay: .seconds(2), elapsed: .seconds(2)),
        RetryAttempt(number: 3, delay: .seconds(2), elapsed: .seconds(4)),
      ]
    )
    #expect(await withRetry { $0.number } == 1)
  }

  @Test func `the result of an operation can be noncopyable`() async throws {
    var attempts = 0
    let token = try await withRetry(.attempts(2, backoff: .immediate)) {
      attempts += 1
      if attempts == 1 { throw Offline() }
      return Token(number: attempts)
    }
    #expect(token.number == 2)
  }

  @Test func `an operation can use an actor's state and return a non-Sendable result`() async throws
  {
    #expect(try await Account().attemptsUntilSuccess() == 3)
  }

  @Test @MainActor func `an operation stays on the main actor`() async throws {
    let model = ViewModel()
    try await model.load()
    #expect(model.titles == ["loading", "loading", "loaded"])
  }

  @Test func `a loop over a BackoffSequence can break`() async {
    var numbers: [Int] = []
    for await attempt in BackoffSequence(.attempts(5), clock: clock) {
      numbers.append(attempt.number)
      if attempt.number == 2 { break }
    }
    #expect(numbers == [1, 2])
  }

  @Test func `withTimeout inside withRetry limits each attempt`() async throws {
    let clock = VirtualClock()
    let outcome = try await outcome {
      try await withRetry(.attempts(2, backoff: .immediate), clock: clock) { attempt in
        try await withTimeout(.seconds(5), clock: clock) {
          if attempt.number == 1 { try await clock.sleep(for: .seconds(60)) }
          return attempt.number
        }
      }
    } while: { _ in
      try await clock.waitForSleepers(count: 2)
      clock.advance(by: .seconds(5))
    }
    #expect(try outcome.get() == 2)
  }
}
