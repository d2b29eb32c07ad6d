//! Reconnects for ever: slower after each failure, quickly after a connection that lasted.

import SteadfastRetry

/// A connection that receives a few messages and then breaks.
struct Connection {
  struct Refused: Error {}
  struct Broken: Error {}

  var messages: Int

  /// The server refuses the second and the third connection.
  static func open(_ number: Int) throws -> Connection {
    if number == 2 || number == 3 { throw Refused() }
    return Connection(messages: number)
  }

  func receive() async throws {
    for _ in 0..<messages { try await Task.sleep(for: .milliseconds(5)) }
    print("\(messages) messages", terminator: ", ")
    throw Broken()
  }
}

// snippet.loop
/// Keeps a connection open for as long as its task is not cancelled.
func stayConnected(connections limit: Int) async throws {
  let backoff = Backoff.exponential(from: .milliseconds(50))
    .jittered(.full)
  let policy = RetryPolicy(
    maxAttempts: nil,
    backoff: backoff.capped(at: .seconds(30))
  )
  var attempts = BackoffSequence(policy).makeAsyncIterator()
  var number = 0
  while number < limit, let attempt = await attempts.next() {
    number += 1
    print(
      "connection \(number), attempt \(attempt.number)",
      terminator: ": "
    )
    let start = ContinuousClock.now
    do {
      try await Connection.open(number).receive()
    } catch {
      print(error)
    }
    // Only a connection that lasted starts the delays over. Else a server
    // that accepts and hangs up at once would be called without a pause.
    if start.duration(to: .now) >= .milliseconds(10) { attempts.reset() }
  }
}
// snippet.end

try await stayConnected(connections: 6)
