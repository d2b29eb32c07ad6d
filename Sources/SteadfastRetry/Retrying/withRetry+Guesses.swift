// What other libraries have, and this one has otherwise. A call of it would be an error of the
// compiler's anyway. Here it says what to write.

/// Not here: a policy has the number of attempts and the delays.
@available(
  *,
  unavailable,
  message: "give a policy, as in withRetry(.attempts(5, backoff: .constant(.seconds(1))))"
)
public func withRetry<Success>(
  maxAttempts: Int,
  delay: Duration = .zero,
  operation: () async throws -> Success
) async throws -> Success {
  try await operation()
}

/// Not here: `shouldRetry` is called after each failure, and may note it.
@available(
  *,
  unavailable,
  message: "note the failure in shouldRetry, and return .default(for: error) there"
)
public func withRetry<Success>(
  _ policy: RetryPolicy = .default,
  operation: () async throws -> Success,
  onRetry: (any Error) -> Void
) async throws -> Success {
  try await operation()
}

/// Not here: `shouldRetry` is called after each failure, and may note it.
@available(
  *,
  unavailable,
  message: "note the failure in shouldRetry, and return .default(for: error) there"
)
public func withRetry<Success>(
  _ policy: RetryPolicy = .default,
  operation: () async throws -> Success,
  onRetry: (any Error, RetryAttempt) -> Void
) async throws -> Success {
  try await operation()
}

/// Not here: `shouldRetry` returns a decision.
@available(*, unavailable, message: "return a RetryDecision from shouldRetry: .retry or .stop")
public func withRetry<Success>(
  _ policy: RetryPolicy = .default,
  clock: some Clock<Duration> = ContinuousClock(),
  budget: RetryBudget? = nil,
  operation: () async throws -> Success,
  shouldRetry: (any Error, RetryAttempt) -> Bool
) async throws -> Success {
  try await operation()
}

/// Not here: `shouldRetry` gets the attempt, too, and returns a decision.
@available(
  *,
  unavailable,
  message: "give shouldRetry two parameters, the error and the attempt, and return .retry or .stop"
)
public func withRetry<Success>(
  _ policy: RetryPolicy = .default,
  clock: some Clock<Duration> = ContinuousClock(),
  budget: RetryBudget? = nil,
  operation: () async throws -> Success,
  shouldRetry: (any Error) -> Bool
) async throws -> Success {
  try await operation()
}
