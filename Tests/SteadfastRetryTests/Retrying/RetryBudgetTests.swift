import TestSupport
import Testing

@testable import SteadfastRetry

@Suite struct RetryBudgetTests {
  @Test func `each retry costs a token, until no token remains`() {
    let budget = RetryBudget(capacity: 2, retriesPerSuccess: 0.25)
    #expect(budget.tokens == 2)
    #expect(budget.withdraw())
    #expect(budget.withdraw())
    #expect(!budget.withdraw())
    #expect(budget.tokens == 0)
  }

  @Test func `successes return tokens up to the capacity`() {
    let budget = RetryBudget(capacity: 2, retriesPerSuccess: 0.4)
    #expect(budget.withdraw())
    #expect(budget.withdraw())
    budget.recordSuccess()
    budget.recordSuccess()
    #expect(!budget.withdraw())
    budget.recordSuccess()
    #expect(budget.withdraw())
    for _ in 0..<10 { budget.recordSuccess() }
    #expect(budget.tokens == 2)
    budget.refund()
    #expect(budget.tokens == 2)
  }

  @Test(arguments: [Int.min, -1, 0])
  func `a budget without capacity permits no retry`(capacity: Int) {
    let budget = RetryBudget(capacity: capacity, retriesPerSuccess: 0.1)
    #expect(budget.capacity == 0)
    budget.recordSuccess()
    #expect(!budget.withdraw())
  }

  @Test(arguments: [-1, -.infinity, .nan, 0, 0.0001, 0.1, 1, 1e300, .infinity])
  func `with any retriesPerSuccess, the tokens stay between zero and the capacity`(
    retriesPerSuccess: Double
  ) {
    for capacity in [0, 1, 100, Int.max] {
      let budget = RetryBudget(capacity: capacity, retriesPerSuccess: retriesPerSuccess)
      let full = budget.tokens
      for _ in 0..<3 {
        _ = budget.withdraw()
        budget.recordSuccess()
        #expect(budget.tokens >= 0 && budget.tokens <= full)
      }
    }
  }

  @Test(arguments: [(0.0004, 0), (0.0006, 0.001), (1.0 / 3, 0.333), (2.5, 2.5)])
  func `retriesPerSuccess is rounded to thousandths`(given: Double, rounded: Double) {
    let budget = RetryBudget(capacity: 10, retriesPerSuccess: given)
    #expect(budget.retriesPerSuccess == rounded)
    while budget.withdraw() {}
    budget.recordSuccess()
    #expect(budget.tokens == rounded)
  }

  @Test func `concurrent threads take each token only once`() async {
    // Enough for threads to collide, even on a machine where a call takes only 20 ns.
    let count = Soak.runs(short: 2_000_000)
    let budget = RetryBudget(capacity: count, retriesPerSuccess: 0.1)
    let taken = await withTaskGroup(of: Int.self) { group in
      for _ in 0..<4 {
        group.addTask {
          var taken = 0
          while budget.withdraw() { taken += 1 }
          return taken
        }
      }
      return await group.reduce(0, +)
    }
    #expect(taken == count)
  }

  @Test func `the tokens of a budget that a thousand callers share stay within the capacity`()
    async
  {
    let budget = RetryBudget(capacity: 100, retriesPerSuccess: 0.1)
    let attempts = await withTaskGroup(of: Int.self) { group in
      for _ in 0..<1000 {
        group.addTask {
          var attempts = 0
          await #expect(throws: Offline.self) {
            try await withRetry(.attempts(10, backoff: .immediate), budget: budget) {
              attempts += 1
              let tokens = budget.tokens
              if tokens < 0 || tokens > 100 { Issue.record("\(tokens) tokens") }
              throw Offline()
            }
          }
          return attempts
        }
      }
      return await group.reduce(0, +)
    }
    #expect(attempts == 1000 + 100)
    #expect(budget.tokens == 0)
  }

  @Test
  func `the retries of a thousand callers stay within the budget if half of all attempts fail`()
    async
  {
    let budget = RetryBudget(capacity: 10, retriesPerSuccess: 0.3)
    let counts = await withTaskGroup(of: (successes: Int, retries: Int).self) { group in
      for caller in 0..<1000 {
        group.addTask {
          var retries = -1
          do {
            try await withRetry(.attempts(3, backoff: .immediate), budget: budget) { attempt in
              retries += 1
              let tokens = budget.tokens
              if tokens < 0 || tokens > 10 { Issue.record("\(tokens) tokens") }
              if (caller + attempt.number).isMultiple(of: 2) { throw Offline() }
            }
            return (1, retries)
          } catch {
            return (0, retries)
          }
        }
      }
      return await group.reduce((successes: 0, retries: 0)) {
        ($0.successes + $1.successes, $0.retries + $1.retries)
      }
    }
    #expect(Double(counts.retries) <= 10 + Double(counts.successes) * 0.3)
  }
}
