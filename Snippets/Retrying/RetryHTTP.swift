//! Decides by HTTP status, method and `Retry-After` whether a request is sent again, and when.

import SteadfastRetry

/// A server's response.
struct Response {
  var status: Int
  var headers: [String: String] = [:]
}

// snippet.error
/// A failed response, which knows whether the request may be sent again.
struct HTTPError: RetryAwareError {
  var status: Int
  var retryDecision: RetryDecision

  init(_ response: Response, method: String) {
    status = response.status
    retryDecision = .http(
      status: response.status,
      method: method,
      retryAfter: response.headers["Retry-After"],
      date: response.headers["Date"]
    )
  }
}
// snippet.end

/// A server that is overloaded, then refuses requests until a certain time, then answers.
func send(_ attempt: Int) -> Response {
  switch attempt {
  case 1: Response(status: 503)
  case 2:
    Response(
      status: 429,
      headers: [
        "Date": "Sun, 06 Nov 1994 08:49:37 GMT",
        "Retry-After": "Sun, 06 Nov 1994 08:49:38 GMT",
      ]
    )
  default: Response(status: 200)
  }
}

// snippet.call
let policy = RetryPolicy(
  maxAttempts: 5,
  maxElapsedTime: .seconds(30),  // No server makes this wait for hours.
  backoff: .exponential(from: .milliseconds(20))
)
let response = try await withRetry(policy) { attempt in
  let response = send(attempt.number)
  print(
    "attempt \(attempt.number), after \(attempt.delay): \(response.status)"
  )
  guard response.status == 200 else {
    throw HTTPError(response, method: "GET")
  }
  return response
}
// snippet.end
print("answered: \(response.status)")

for (status, method) in [(500, "GET"), (500, "POST"), (404, "GET"), (429, "POST")] {
  let decision = RetryDecision.http(status: status, method: method, retryAfter: "7")
  print("\(method) \(status), Retry-After: 7:", decision)
}
