import SteadfastRetry

/// What fails in the tests; it says at which attempt it did.
struct Offline: Error, Equatable {
  var attempt = 0
}

/// A failure that names the delay before the next attempt.
struct Throttled: RetryAwareError {
  var delay = Duration.seconds(7)

  var retryDecision: RetryDecision { .retry(after: delay) }
}

/// A failure that no repetition mends.
struct Forbidden: RetryAwareError {
  var retryDecision: RetryDecision { .stop }
}
