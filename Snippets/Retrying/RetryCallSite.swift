//! Calls a service that fails now and then, with each of the options of a call site.

import SteadfastRetry

/// A service that is down for its first few calls.
actor Service {
  struct Unavailable: Error {}

  private var failures: Int

  init(failures: Int) { self.failures = failures }

  func greeting() throws -> String {
    if failures > 0 {
      failures -= 1
      throw Unavailable()
    }
    return "hello"
  }
}

let service = Service(failures: 1)
let flaky = Service(failures: 3)

// snippet.simple
let greeting = try await withRetry { try await service.greeting() }
// snippet.end
print("by default:", greeting)

// snippet.policy
let backoff = Backoff.exponential(from: .milliseconds(20), multiplier: 2)
  .jittered(.full).capped(at: .seconds(1))
let policy = RetryPolicy(
  maxAttempts: 8,
  maxElapsedTime: .seconds(30),
  backoff: backoff
)
let again = try await withRetry(policy) { try await flaky.greeting() }
// snippet.end
print("\(policy):", again)

// snippet.decision
struct Forbidden: Error {}

do {
  try await withRetry(
    .attempts(5, backoff: .constant(.milliseconds(10)))
  ) { attempt in
    print("attempt \(attempt.number), after \(attempt.delay)")
    if attempt.number == 3 { throw Forbidden() }
    throw Service.Unavailable()
  } shouldRetry: { error, attempt in
    error is Forbidden ? .stop : .retry
  }
} catch {
  print("gave up:", error)
}
// snippet.end

// snippet.typed
do {
  try await withRetry(.attempts(2, backoff: .immediate)) {
    () async throws(Forbidden) in
    throw Forbidden()
  }
} catch {
  let forbidden: Forbidden = error  // No cast: the type of error is kept.
  print("typed:", forbidden)
}
// snippet.end

// snippet.timeout
do {
  try await withRetry(.attempts(2, backoff: .immediate)) {
    try await withTimeout(.milliseconds(50)) {
      try await Task.sleep(for: .seconds(60))
    }
  }
} catch let error as TimeoutError {
  print("too slow:", error)
}
// snippet.end

// snippet.notyet
let job = try await withRetry(
  .within(.seconds(10), backoff: .constant(.milliseconds(10)))
) {
  attempt in
  let progress = attempt.number * 40
  guard progress >= 100 else { throw NotYet(progress) }
  return progress
}
// snippet.end
print("polled until done:", job)
