import SteadfastRetry

private let threeAttempts = RetryPolicy.attempts(3)
private let threeInTime = RetryPolicy(maxAttempts: 3, maxElapsedTime: .seconds(60))
private let fiveAtOnce = RetryPolicy.attempts(5, backoff: .immediate)
private let calls = 100_000
private let budget = RetryBudget(capacity: 100, retriesPerSuccess: 0.1)

/// The operation calls a function, and its first attempt succeeds.
let successBenchmarks = [
  Benchmark("bare call", iterations: calls) { count in
    for index in 0..<count { consume(try? await succeed(index)) }
  },
  Benchmark("hand-written loop", against: "bare call", iterations: calls) { count in
    for index in 0..<count {
      consume(try? await handWrittenRetry(attempts: 3) { try await succeed(index) })
    }
  },
  Benchmark("withRetry(.attempts(3))", against: "bare call", iterations: calls) { count in
    for index in 0..<count {
      consume(try? await withRetry(threeAttempts) { try await succeed(index) })
    }
  },
  Benchmark("… { attempt in }", against: "bare call", iterations: calls) { count in
    for _ in 0..<count {
      consume(try? await withRetry(threeAttempts) { try await succeed($0.number) })
    }
  },
  Benchmark("… with a budget", against: "bare call", iterations: calls) { count in
    for index in 0..<count {
      consume(try? await withRetry(threeAttempts, budget: budget) { try await succeed(index) })
    }
  },
  Benchmark("… with a time limit", against: "bare call", iterations: calls) { count in
    for index in 0..<count {
      consume(try? await withRetry(threeInTime) { try await succeed(index) })
    }
  },
]

/// The operation calls an actor, and its first attempt succeeds.
let actorBenchmarks = [
  Benchmark("bare call of an actor", iterations: calls) { count in
    for _ in 0..<count { consume(try? await service.succeed()) }
  },
  Benchmark("hand-written loop", against: "bare call of an actor", iterations: calls) { count in
    for _ in 0..<count {
      consume(try? await handWrittenRetry(attempts: 3) { try await service.succeed() })
    }
  },
  Benchmark("withRetry(.attempts(3))", against: "bare call of an actor", iterations: calls) {
    count in
    for _ in 0..<count {
      consume(try? await withRetry(threeAttempts) { try await service.succeed() })
    }
  },
]

/// The operation fails three times and then succeeds, without delays.
let failureBenchmarks = [
  Benchmark("hand-written, any Error", iterations: calls) { count in
    for _ in 0..<count {
      var flaky = Flaky(failures: 3)
      consume(try? await handWrittenRetry(attempts: 5) { try await flaky.call() })
    }
  },
  Benchmark("withRetry, any Error", against: "hand-written, any Error", iterations: calls) {
    count in
    for _ in 0..<count {
      var flaky = Flaky(failures: 3)
      consume(try? await withRetry(fiveAtOnce) { try await flaky.call() })
    }
  },
  Benchmark("hand-written, typed", iterations: calls) { count in
    for _ in 0..<count {
      var flaky = Flaky(failures: 3)
      consume(
        try? await handWrittenTypedRetry(attempts: 5) { () async throws(Failed) in
          try await flaky.callTyped()
        }
      )
    }
  },
  Benchmark("withRetry, typed", against: "hand-written, typed", iterations: calls) { count in
    for _ in 0..<count {
      var flaky = Flaky(failures: 3)
      consume(
        try? await withRetry(fiveAtOnce) { () async throws(Failed) in try await flaky.callTyped() }
      )
    }
  },
  Benchmark("… shouldRetry: { .retry }", against: "hand-written, typed", iterations: calls) {
    count in
    for _ in 0..<count {
      var flaky = Flaky(failures: 3)
      consume(
        try? await withRetry(fiveAtOnce) { () async throws(Failed) in
          try await flaky.callTyped()
        } shouldRetry: { _, _ in
          .retry
        }
      )
    }
  },
  Benchmark("BackoffSequence, four attempts", iterations: calls) { count in
    for _ in 0..<count {
      for await attempt in BackoffSequence(fiveAtOnce) where attempt.number == 4 { break }
    }
  },
]

/// Each benchmark computes the delay after a second attempt.
let delayBenchmarks: [Benchmark] =
  [
    ("constant", Backoff.constant(.seconds(1))),
    ("exponential, capped", .exponential(from: .milliseconds(100)).capped(at: .seconds(10))),
    ("default (± 50 %)", .default),
    ("fibonacci, decorrelated", .fibonacci(from: .seconds(1)).jittered(.decorrelated)),
  ].map { name, backoff in
    Benchmark(name, iterations: calls) { count in
      let attempt = RetryAttempt(number: 2, delay: .seconds(1))
      var generator = Xorshift()
      for _ in 0..<count { consume(backoff.delay(after: attempt, using: &generator)) }
    }
  }

/// The cost that a time limit adds to a call if the limit is not reached.
///
/// One operation never suspends, and the other operation yields.
let timeoutBenchmarks = [
  Benchmark("withTimeout(.seconds(60))", iterations: 10_000) { count in
    for index in 0..<count {
      consume(try? await withTimeout(.seconds(60)) { try await succeed(index) })
    }
  },
  Benchmark("a child task that yields", iterations: 10_000) { count in
    for _ in 0..<count {
      await withTaskGroup(of: Void.self) { group in group.addTask { await Task.yield() } }
    }
  },
  Benchmark(
    "… of an operation that yields",
    against: "a child task that yields",
    iterations: 10_000
  ) {
    count in
    for index in 0..<count {
      consume(
        try? await withTimeout(.seconds(60)) {
          await Task.yield()
          return try await succeed(index)
        }
      )
    }
  },
]
