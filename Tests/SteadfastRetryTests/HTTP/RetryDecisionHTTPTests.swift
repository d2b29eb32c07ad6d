import SteadfastRetry
import Testing

@Suite struct RetryDecisionHTTPTests {
  private static let idempotent = ["GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"]
  private static let others = ["POST", "PATCH", "CONNECT", "get", ""]

  @Test(arguments: [408, 425, 429], idempotent + others)
  func `a request is retried if the server has certainly not processed it`(
    status: Int,
    method: String
  ) {
    #expect(RetryDecision.http(status: status, method: method) == .retry)
  }

  @Test(arguments: [500, 502, 503, 504, 520, 599])
  func `a request that the server may have processed is retried only if the request is idempotent`(
    status: Int
  ) {
    for method in Self.idempotent {
      #expect(RetryDecision.http(status: status, method: method) == .retry)
    }
    for method in Self.others {
      #expect(RetryDecision.http(status: status, method: method) == .stop)
      #expect(
        RetryDecision.http(status: status, method: method, isIdempotent: true) == .retry
      )
    }
  }

  @Test(arguments: [
    100, 200, 204, 301, 304, 400, 401, 403, 404, 409, 410, 422, 499, 501, 505, 506, 507, 508, 510,
    511, 600, 0, -1, Int.max, Int.min,
  ])
  func `a request that would fail again is not retried`(status: Int) {
    #expect(
      RetryDecision.http(status: status, method: "GET", isIdempotent: true, retryAfter: "5")
        == .stop
    )
  }

  @Test func `a status 503 with Retry-After means that the server has not processed the request`() {
    #expect(
      RetryDecision.http(status: 503, method: "POST", retryAfter: "7")
        == .retry(after: .seconds(7))
    )
    #expect(RetryDecision.http(status: 503, method: "POST", retryAfter: "soon") == .stop)
    #expect(RetryDecision.http(status: 500, method: "POST", retryAfter: "7") == .stop)
  }

  private static let date = "Sun, 06 Nov 1994 08:49:37 GMT"

  @Test(arguments: [
    ("120", date as String?, RetryDecision.retry(after: .seconds(120))),
    ("120", nil, .retry(after: .seconds(120))),
    (" 7\t", nil, .retry(after: .seconds(7))),
    ("0", nil, .retry),
    ("00", nil, .retry),
    ("99999999999999999999999", nil, .retry(after: .seconds(Int64.max))),
    ("Sun, 06 Nov 1994 08:51:37 GMT", date, .retry(after: .seconds(120))),
    ("Sunday, 06-Nov-94 08:51:37 GMT", date, .retry(after: .seconds(120))),
    ("Sun Nov  6 08:51:37 1994", date, .retry(after: .seconds(120))),
    ("Mon, 07 Nov 1994 08:49:37 GMT", date, .retry(after: .seconds(86_400))),
    ("Sun, 06 Nov 1994 08:51:37 GMT", nil, .retry),
    ("Sun, 06 Nov 1994 08:51:37 GMT", "yesterday", .retry),
    (date, date, .retry),
    ("Sat, 05 Nov 1994 08:49:37 GMT", date, .retry),
    ("", nil, .retry), ("-5", nil, .retry), ("+5", nil, .retry), ("1.5", nil, .retry),
    ("5 6", nil, .retry), ("٥", nil, .retry), ("soon", date, .retry),
  ])
  func `Retry-After is parsed as seconds or as a date`(
    value: String,
    date: String?,
    decision: RetryDecision
  ) {
    #expect(
      RetryDecision.http(status: 429, method: "POST", retryAfter: value, date: date) == decision
    )
  }
}
