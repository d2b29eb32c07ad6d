/// A failure in the benchmarks.
struct Failed: Error {
  /// The database's message.
  var reason = ""
}

/// Succeeds at once.
///
/// The optimiser can't inline this operation.
@inline(never) func succeed(_ value: Int) async throws -> Int {
  if value < 0 { throw Failed() }
  return value &+ 1
}

/// An actor, whose call is the simplest realistic operation to retry.
actor Service {
  private var calls = 0

  @inline(never) func succeed() throws -> Int {
    if calls < 0 { throw Failed() }
    calls &+= 1
    return calls
  }
}

let service = Service()

/// An operation that fails a few times before it succeeds.
struct Flaky {
  private var calls = 0
  private let failures: Int

  init(failures: Int) { self.failures = failures }

  @inline(never) mutating func call() async throws -> Int {
    calls += 1
    if calls <= failures { throw Failed() }
    return calls
  }

  @inline(never) mutating func callTyped() async throws(Failed) -> Int {
    calls += 1
    if calls <= failures { throw Failed() }
    return calls
  }
}

/// A typical loop without a library: no delays, no cancellation.
func handWrittenRetry(attempts: Int, _ operation: () async throws -> Int) async throws -> Int {
  var attempt = 1
  while true {
    do {
      return try await operation()
    } catch {
      if attempt == attempts { throw error }
      attempt += 1
    }
  }
}

/// A typical loop without a library, with a typed error.
func handWrittenTypedRetry(
  attempts: Int,
  _ operation: () async throws(Failed) -> Int
) async throws(Failed) -> Int {
  var attempt = 1
  while true {
    do throws(Failed) {
      return try await operation()
    } catch {
      if attempt == attempts { throw error }
      attempt += 1
    }
  }
}

/// A very cheap generator, so that the benchmarks measure the computation of the delays.
struct Xorshift: RandomNumberGenerator {
  private var state: UInt64 = 0x9E37_79B9

  mutating func next() -> UInt64 {
    state ^= state << 13
    state ^= state >> 7
    state ^= state << 17
    return state
  }
}

/// Uses a result, so that the optimiser can't remove its computation.
@inline(never) func consume<Value>(_ value: Value) {}
