//! Tests with Swift Testing, as in a test target. This program compiles them, and runs none.

// snippet.trait
import SteadfastTesting
import Testing

// snippet.hide
struct Offline: Error {}

/// Asks a server, and asks again while it is offline.
struct Weather<C: Clock<Duration>> {
  let clock: C
  let fetch: @Sendable () async throws -> Double

  func temperature() async throws -> Double {
    let backoff = Backoff.exponential(from: .seconds(1), multiplier: 2)
    return try await withRetry(.attempts(5, backoff: backoff), clock: clock) { try await fetch() }
  }
}
// snippet.show
@Suite(.virtualTime) struct WeatherTests {
  let time: VirtualTime

  init() throws { time = try VirtualTime.required }

  @Test func `it gives up after five attempts`() async {
    let weather = Weather(clock: time.clock) { throw Offline() }
    await #expect(throws: Offline.self) { try await weather.temperature() }
    #expect(time.clock.now.offset == .seconds(1 + 2 + 4 + 8))
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

// snippet.manual
@Test(.virtualTime(.manual))
func `it tries again after a second`() async throws {
  let time = try VirtualTime.required
  let server = Server()
  let weather = Weather(clock: time.clock) { try await server.answer() }
  async let temperature = weather.temperature()

  await time.advance(by: .milliseconds(999))
  #expect(await server.requests == 1)
  await time.advance(by: .milliseconds(1))
  #expect(await server.requests == 2)

  await server.recover()
  await time.advance(by: .seconds(2))
  #expect(try await temperature == 21.5)
}
// snippet.end

// snippet.orders
@Test(arguments: 0..<100 as Range<UInt64>)
func `two clients share one token`(seed: UInt64) async throws {
  try await withVirtualTime(order: .shuffled(seed: seed)) { time in
    // …
  }
}
// snippet.end
