import SteadfastRetry

/// A failure in tests, with the number of the failed attempt.
struct Offline: Error, Equatable {
  var attempt = 0
}

/// A failure that requests the delay before the next attempt.
struct Throttled: RetryAwareError {
  var delay = Duration.seconds(7)

  var retryDecision: RetryDecision { .retry(after: delay) }
}

/// A failure that no retry can fix.
struct Forbidden: RetryAwareError {
  var retryDecision: RetryDecision { .stop }
}
