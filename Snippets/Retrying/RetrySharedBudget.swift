//! Keeps the retries of many callers from overloading a service that is down.

import SteadfastRetry
import Synchronization

/// A service that counts its calls and answers none of them.
final class DownService: Sendable {
  struct Unavailable: Error {}

  private let counter = Atomic(0)

  var calls: Int { counter.load(ordering: .relaxed) }

  func call() throws {
    counter.add(1, ordering: .relaxed)
    throw Unavailable()
  }
}

/// Returns how many calls the service gets from a thousand callers that try up to five times.
func calls(budget: RetryBudget?) async -> Int {
  let service = DownService()
  await withTaskGroup { group in
    for _ in 0..<1000 {
      group.addTask {
        // snippet.call
        try? await withRetry(.attempts(5, backoff: .immediate), budget: budget) {
          try service.call()
        }
        // snippet.end
      }
    }
  }
  return service.calls
}

// snippet.budget
// All callers of a service share one budget: a reserve of 100 retries, to
// which every ten successes add one.
let budget = RetryBudget(capacity: 100, retriesPerSuccess: 0.1)
// snippet.end

print("without a budget, 1,000 callers make", await calls(budget: nil), "calls")
print("with one they make", await calls(budget: budget), "and leave", budget.tokens, "tokens")
