//! Short calls: one for each thing that a retry can do.

import SteadfastRetry

struct User {}
struct Page {}
struct Report { var isComplete = true }
struct NotFound: Error {}

/// A service that is always there.
struct Service {
  func fetchUser(_ id: Int) async throws -> User { User() }
  func report(_ id: Int) async throws -> Report { Report() }
}

let api = Service()

func fetch() async throws -> User { User() }
func fetch(page: Int) async throws -> Page { Page() }
func refresh() async throws {}
func connect() async -> Bool { true }
func isReachable() async -> Bool { true }

func retry(_ id: Int) async throws {
  // snippet.user
  let user = try await withRetry(.attempts(5)) { try await api.fetchUser(id) }
  // snippet.end
  print(user)
}

func limitEachAttempt() async throws {
  // snippet.attempt-limit
  let page = try await withRetry(.attempts(3)) {
    try await withTimeout(.seconds(5)) { try await fetch(page: 1) }
  }
  // snippet.end
  print(page)
}

func limitBoth() async throws {
  // snippet.both-limits
  let page = try await withRetry(.within(.seconds(60))) {
    try await withTimeout(.seconds(5)) { try await fetch(page: 1) }
  }
  // snippet.end
  print(page)
}

func poll(_ id: Int) async throws {
  // snippet.not-yet
  let every = Backoff.constant(.seconds(2))
  let report = try await withRetry(.within(.seconds(60), backoff: every)) {
    let report = try await api.report(id)
    guard report.isComplete else { throw NotYet(report) }
    return report
  }
  // snippet.end
  print(report)
}

func decide() async throws {
  // snippet.not-found
  let user = try await withRetry {
    try await fetch()
  } shouldRetry: { error, _ in
    error is NotFound ? .retry : .default(for: error)
  }
  // snippet.end
  print(user)
}

func collect() async throws {
  // snippet.history
  var history: [any Error] = []
  let user = try await withRetry {
    try await fetch()
  } shouldRetry: { error, _ in
    history.append(error)
    return .default(for: error)
  }
  // snippet.end
  print(user, history)
}

func loop() async {
  // snippet.connect
  for await _ in BackoffSequence(.attempts(5)) {
    if await connect() { break }
  }
  // snippet.end
  // snippet.reach
  for await _ in BackoffSequence(.within(.seconds(60))) {
    if await isReachable() { break }
  }
  // snippet.end
}

func backoff() -> Backoff {
  // snippet.backoff
  Backoff.exponential(from: .milliseconds(100), multiplier: 2)
    .jittered(.full).capped(at: .seconds(10))
  // snippet.end
}

func asExponentialBackOff() async throws {
  // snippet.quarter
  try await withRetry(.within(.seconds(15 * 60))) { attempt in
    try await refresh()
  }
  // snippet.end
  // snippet.numbers
  let policy = RetryPolicy.within(
    .seconds(100),
    backoff: .exponential(from: .seconds(2), multiplier: 2)
      .jittered(.proportional(0.2)).capped(at: .seconds(10))
  )
  // snippet.end
  print(policy)
}

try await retry(1)
try await limitEachAttempt()
try await limitBoth()
try await poll(1)
try await decide()
try await collect()
await loop()
print(backoff())
try await asExponentialBackOff()
