extension RetryDecision {
  /// What to do about an unsuccessful response of an HTTP server.
  ///
  /// | status | any request | idempotent request |
  /// | --- | --- | --- |
  /// | 408, 425, 429; 503 with `Retry-After` | retry | retry |
  /// | 500, 502, 503, 504, other unknown 5xx | stop | retry |
  /// | 501, 505, 506, 507, 508, 510, 511 | stop | stop |
  /// | anything else | stop | stop |
  ///
  /// In the first row, the server says that it has not acted on the request, so repeating it is
  /// safe. In the second row, the server may have acted on it, so only an idempotent request may be
  /// repeated (RFC 9110, 9.2.2). In the third row, a repeated request would fail for the same
  /// reason.
  ///
  /// If the request is to be retried and `Retry-After` names a time in the future, the decision is
  /// ``RetryDecision/retry(after:)``. A server may ask for hours; ``RetryPolicy/maxElapsedTime``
  /// guards against that. A date is compared with the response's own `Date`, which comes from the
  /// same clock, so a wrong clock on this side does no harm. A value that can't be read counts as
  /// absent.
  /// - Parameters:
  ///   - status: the response's status code.
  ///   - method: the request's method; GET, HEAD, OPTIONS, TRACE, PUT and DELETE are idempotent.
  ///   - isIdempotent: whether the request may be repeated though its method does not say so, for
  ///     example because it has an idempotency key.
  ///   - retryAfter: the response's `Retry-After`, as seconds or as a date.
  ///   - date: the response's `Date`.
  /// - Returns: whether, and when, to send the request again.
  public static func http(
    status: Int,
    method: String,
    isIdempotent: Bool = false,
    retryAfter: String? = nil,
    date: String? = nil
  ) -> RetryDecision {
    let retryAfter = retryAfter.flatMap { HTTPRetryAfter($0, date: date) }
    switch status {
    case 408, 425, 429: break
    case 503 where retryAfter != nil: break
    case 501, 505, 506, 507, 508, 510, 511: return .stop
    case 500...599 where isIdempotent || isIdempotentMethod(method): break
    default: return .stop
    }
    guard let retryAfter, retryAfter.delay > .zero else { return .retry }
    return .retry(after: retryAfter.delay)
  }

  // Methods are case-sensitive (RFC 9110, 9.1).
  private static func isIdempotentMethod(_ method: String) -> Bool {
    switch method {
    case "GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE": true
    default: false
    }
  }
}
