import SteadfastRetry
import Testing

@Suite struct RetryPolicyTests {
  @Test func `the default policy makes up to five attempts, without a time limit`() {
    #expect(RetryPolicy.default.maxAttempts == 5)
    #expect(RetryPolicy.default.maxElapsedTime == nil)
  }

  @Test func `a policy without maxAttempts has no limits, and the default backoff`() {
    let policy = RetryPolicy(maxAttempts: nil)
    #expect(policy.maxAttempts == nil)
    #expect(policy.maxElapsedTime == nil)
    #expect(policy.backoff.description == Backoff.default.description)
    #expect(policy.randomness == .system)
  }

  @Test(arguments: [
    (RetryPolicy.attempts(5, backoff: .immediate), "at most 5 attempts; immediate"),
    (.attempts(-1, backoff: .immediate), "at most 1 attempt; immediate"),
    (.within(.seconds(30), backoff: .immediate), "within 30.0 seconds; immediate"),
    (RetryPolicy(maxAttempts: nil, backoff: .immediate), "without end; immediate"),
    (
      RetryPolicy(maxAttempts: 2, maxElapsedTime: .seconds(1), backoff: .constant(.seconds(3))),
      "at most 2 attempts, within 1.0 seconds; constant 3.0 seconds"
    ),
  ])
  func `a policy describes itself`(policy: RetryPolicy, description: String) {
    #expect(policy.description == description)
  }
}
