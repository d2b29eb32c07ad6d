//! Tests code that retries, in virtual time: a minute of waiting takes no time, and the test
//! guesses nothing.

import SteadfastTesting

// snippet.client
struct Offline: Error {}

/// Asks a server, and asks again while it is offline.
struct Weather<C: Clock<Duration>> {
  let clock: C
  let fetch: @Sendable () async throws -> Double

  func temperature() async throws -> Double {
    let backoff = Backoff.exponential(from: .seconds(1), multiplier: 2)
    return try await withRetry(
      .attempts(5, backoff: backoff),
      clock: clock
    ) {
      try await fetch()
    }
  }
}
// snippet.end

/// A server that is offline until it recovers.
actor Server {
  private(set) var requests = 0
  private var isUp = false

  func recover() { isUp = true }

  func answer() throws -> Double {
    requests += 1
    guard isUp else { throw Offline() }
    return 21.5
  }
}

// The time passes by itself while everything else waits.
// snippet.automatic
try await withVirtualTime { time in
  let weather = Weather(clock: time.clock) { throw Offline() }
  do {
    print(try await weather.temperature())
  } catch {
    print("given up after \(time.clock.now)")
  }
}
// snippet.end

// The test moves the time, and looks at the code in between.
// snippet.manual
try await withVirtualTime(.manual) { time in
  let server = Server()
  let weather = Weather(clock: time.clock) { try await server.answer() }
  async let temperature = weather.temperature()

  await time.advance(by: .milliseconds(999))
  print("\(time.clock.now): \(await server.requests) request")
  await time.advance(by: .milliseconds(1))
  print("\(time.clock.now): \(await server.requests) requests")

  await server.recover()
  await time.advance(by: .seconds(2))
  print("\(time.clock.now): \(try await temperature) degrees")
}
// snippet.end

// To wait for what can't come is an error, at once.
do {
  try await withVirtualTime(.manual) { time in
    _ = try await Weather(clock: time.clock) { throw Offline() }.temperature()
  }
} catch let error as VirtualTimeError {
  print(error)
}
