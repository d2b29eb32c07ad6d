extension RetryDecision {
  /// What to do about a response of an HTTP server that is not the wanted one.
  ///
  /// | status | any request | idempotent request |
  /// | --- | --- | --- |
  /// | 408, 425, 429; 503 with `Retry-After` | retry | retry |
  /// | 500, 502, 503, 504, other unknown 5xx | stop | retry |
  /// | 501, 505, 506, 507, 508, 510, 511 | stop | stop |
  /// | anything else | stop | stop |
  ///
  /// In the first row the server says that it has not acted on the request, so that repeating it
  /// is safe. In the second it may have: only an idempotent request may be repeated (RFC 9110,
  /// 9.2.2). In the third a repetition meets the same obstacle.
  ///
  /// Where a retry is due and `Retry-After` names a time to come, the decision is
  /// ``RetryDecision/retryAfter(_:)``; a server may ask for hours, which
  /// ``RetryPolicy/maxElapsedTime`` guards against. A date is compared with the response's own
  /// `Date`, the server's clock with itself, so that a wrong clock on this side does no harm. What
  /// can't be read counts as absent.
  /// - Parameters:
  ///   - status: the response's status code.
  ///   - method: the request's method; GET, HEAD, OPTIONS, TRACE, PUT and DELETE are idempotent.
  ///   - isIdempotent: whether the request may be repeated though its method does not say so, for
  ///     example because it bears an idempotency key.
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
