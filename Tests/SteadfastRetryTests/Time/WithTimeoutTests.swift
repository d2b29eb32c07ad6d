import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastRetry

@Suite(.timeLimit(.minutes(5))) struct WithTimeoutTests {
  private let clock = VirtualClock()

  @Test func `if an operation ends in time, its result is returned, and its timer is removed`()
    async throws
  {
    let value = try await withTimeout(.seconds(5), clock: clock) { 42 }
    #expect(value == 42)
    #expect(clock.pendingSleeps.isEmpty)
  }

  @Test func `an error that is thrown in time is rethrown`() async {
    await #expect(throws: Offline.self) {
      try await withTimeout(.seconds(5), clock: clock) { throw Offline() }
    }
    #expect(clock.pendingSleeps.isEmpty)
  }

  @Test func `the operation is cancelled when its limit expires`() async throws {
    let outcome = try await outcome { [clock] in
      try await withTimeout(.seconds(5), clock: clock) {
        try await clock.sleep(for: .seconds(60))
      }
    } while: { _ in
      try await clock.waitForSleepers(count: 2)
      clock.advance(by: .seconds(5))
    }
    #expect(throws: TimeoutError(limit: .seconds(5))) { try outcome.get() }
    #expect(clock.pendingSleeps.isEmpty)
    #expect(clock.now.offset == .seconds(5))
  }

  @Test func `the operation is not cancelled before its limit expires`() async throws {
    let almost = Duration.seconds(5) - .nanoseconds(1)
    let outcome = try await outcome { [clock] in
      try await withTimeout(.seconds(5), clock: clock) {
        try await clock.sleep(for: almost)
        return 42
      }
    } while: { _ in
      try await clock.waitForSleepers(count: 2)
      clock.advance(by: almost)
    }
    #expect(try outcome.get() == 42)
  }

  @Test func `an operation that ignores its cancellation is awaited, but the timeout is thrown`()
    async throws
  {
    let ended = Log<Int>()
    let (stream, continuation) = AsyncStream.makeStream(of: Int.self)
    let outcome = try await outcome { [clock] in
      try await withTimeout(.seconds(5), clock: clock) {
        // An unstructured task, which is not cancelled with its creator.
        let value = await Task { await stream.first { _ in true } }.value
        ended.add(1)
        return value
      }
    } while: { _ in
      try await clock.waitForSleepers(count: 1)
      clock.advance(by: .seconds(5))
      #expect(ended.count == 0)
      continuation.yield(7)
    }
    #expect(throws: TimeoutError.self) { try outcome.get() }
    #expect(ended.count == 1)
  }

  @Test func `the result of a timed-out operation is discarded`() async throws {
    let (stream, continuation) = AsyncStream.makeStream(of: Int.self)
    continuation.yield(1)
    let outcome = try await outcome { [clock] in
      try await withTimeout(.seconds(5), clock: clock) {
        var received: [Int] = []
        for await element in stream { received.append(element) }
        return received
      }
    } while: { _ in
      try await clock.waitForSleepers(count: 1)
      clock.advance(by: .seconds(5))
    }
    #expect(throws: TimeoutError.self) { try outcome.get() }
  }

  @Test(arguments: [Duration.zero, .seconds(-1), Duration(attoseconds: .min)])
  func `with a limit of zero or less, the operation does not start`(limit: Duration) async {
    await #expect(throws: TimeoutError(limit: limit)) {
      try await withTimeout(limit, clock: clock) { Issue.record("the operation started") }
    }
  }

  @Test func `the longest limit does not trap`() async throws {
    #expect(try await withTimeout(Duration(attoseconds: .max)) { 42 } == 42)
  }

  @Test func `cancelling the task cancels the operation, without a TimeoutError`() async throws {
    let outcome = try await outcome { [clock] in
      try await withTimeout(.seconds(5), clock: clock) {
        try await clock.sleep(for: .seconds(60))
      }
    } while: { cancel in
      try await clock.waitForSleepers(count: 2)
      cancel()
    }
    #expect(throws: CancellationError.self) { try outcome.get() }
    #expect(clock.now.offset == .zero)
  }

  @Test func `the operation of a cancelled task can still succeed`() async throws {
    let outcome = try await outcome { [clock] in
      cancelThisTask()
      return try await withTimeout(.seconds(5), clock: clock) {
        try? await clock.sleep(for: .seconds(60))
        return 42
      }
    } while: { _ in
    }
    #expect(try outcome.get() == 42)
  }

  @Test func `an operation can use an actor's state and return a non-Sendable result`() async throws
  {
    let counter = CountingActor()
    #expect(try await counter.countAfterIncrement(on: clock) == 1)
    let outcome = try await outcome { [clock] in
      try await counter.incrementTooSlowly(on: clock)
    } while: { _ in
      try await clock.waitForSleepers(count: 2)
      clock.advance(by: .seconds(5))
    }
    #expect(throws: TimeoutError.self) { try outcome.get() }
    #expect(await counter.count == 2)
  }

  @Test func `in a virtual time, an operation stays on the executor of the virtual time`()
    async throws
  {
    let seconds = try await withVirtualTime { time in
      let start = time.clock.now
      for limit in [5, 7] {
        await #expect(throws: TimeoutError.self) {
          try await withTimeout(.seconds(limit), clock: time.clock) {
            try await time.clock.sleep(for: .seconds(86_400))
          }
        }
      }
      return start.duration(to: time.clock.now) / .seconds(1)
    }
    #expect(seconds == 12)
  }

  @Test @MainActor func `an operation stays on the main actor`() async throws {
    var order: [Int] = []
    try await withTimeout(.seconds(5), clock: clock) {
      MainActor.assertIsolated()
      order.append(1)
      await Task.yield()
      MainActor.assertIsolated()
      order.append(2)
    }
    #expect(order == [1, 2])
  }

  @Test func `an operation that ends just at its limit succeeds`() async throws {
    try await withVirtualTime { time in
      try await withTimeout(.seconds(5), clock: time.clock) {
        try await time.clock.sleep(for: .seconds(5))
      }
    }
  }

  @Test func `an operation that never suspends starts no sleep, but can still time out`()
    async throws
  {
    let clock = InstantClock()
    #expect(try await withTimeout(.seconds(5), clock: clock) { 42 } == 42)
    await #expect(throws: TimeoutError.self) {
      try await withTimeout(.seconds(5), clock: clock) { clock.advance(by: .seconds(6)) }
    }
    #expect(clock.sleeps == [])
  }

  @Test func `the limit counts from the start of the operation, not from its first suspension`()
    async throws
  {
    let outcome = try await outcome { [clock] in
      try await withTimeout(.seconds(5), clock: clock) {
        clock.advance(by: .seconds(3))
        try await clock.sleep(for: .seconds(60))
      }
    } while: { _ in
      try await clock.waitForSleepers(count: 2)
      #expect(clock.pendingSleeps.map(\.deadline.offset) == [.seconds(5), .seconds(63)])
      clock.advance(by: .seconds(2))
    }
    #expect(throws: TimeoutError.self) { try outcome.get() }
  }

  @Test func `an operation that first suspends after its limit is cancelled at once`()
    async throws
  {
    await #expect(throws: TimeoutError.self) {
      try await withTimeout(.seconds(5), clock: clock) {
        clock.advance(by: .seconds(6))
        try await clock.sleep(for: .seconds(60))
      }
    }
    #expect(clock.now.offset == .seconds(6))
  }

  @Test func `the operation of a cancelled task has no limit`() async throws {
    try await withVirtualTime { time in
      let value = try await withThrowingTaskGroup { group in
        group.addTask {
          try await withTimeout(.seconds(5), clock: time.clock) {
            try? await time.clock.sleep(for: .seconds(60))
            // An unstructured task, which is not cancelled with its creator.
            try await Task(executorPreference: time.executor) {
              try await time.clock.sleep(for: .seconds(60))
            }.value
            return 42
          }
        }
        try await time.clock.sleep(for: .seconds(1))
        group.cancelAll()
        return try await group.next()
      }
      #expect(value == 42)
      #expect(time.clock.now.offset == .seconds(61))
    }
  }

  @Test(arguments: [SystemTimer.continuous, .suspending])
  func `an operation is cancelled when its limit expires on a system clock too`(
    timer: SystemTimer
  ) async throws {
    // Only the system's clock can reach the limit, because the virtual clock stands still.
    await #expect(throws: TimeoutError(limit: .milliseconds(1))) {
      switch timer {
      case .continuous:
        try await withTimeout(.milliseconds(1), clock: .continuous) {
          try await clock.sleep(for: .seconds(60))
        }
      case .suspending:
        try await withTimeout(.milliseconds(1), clock: .suspending) {
          try await clock.sleep(for: .seconds(60))
        }
      }
    }
    #expect(clock.pendingSleeps.isEmpty)
  }

  @Test
  func
    `waiting for a helper task forwards cancellation, and lasts until the task ends`()
    async
  {
    // Where a child task can't start at once, `withTimeout` starts a helper task.
    let task = Task { while !Task.isCancelled { await Task.yield() } }
    await withTaskGroup(of: Void.self) { group in
      group.addTask { await TimeoutRace.wait(for: task) }
      group.cancelAll()
    }
    #expect(task.isCancelled)
  }

  @Test func `a timeout's description states the limit and a remedy`() {
    #expect(
      "\(TimeoutError(limit: .seconds(5)))"
        == "the operation did not end within 5.0 seconds and was cancelled; "
        + "try again, or give withTimeout a longer limit"
    )
  }
}

/// The system's clocks, each of which has a shared timer.
enum SystemTimer {
  case continuous
  case suspending
}
