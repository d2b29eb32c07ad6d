import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastRetry

@Suite(.timeLimit(.minutes(5))) struct WithTimeoutTests {
  private let clock = VirtualClock()

  @Test func `an operation that ends in time returns its result, and the timer is gone`()
    async throws
  {
    let value = try await withTimeout(.seconds(5), clock: clock) { 42 }
    #expect(value == 42)
    #expect(clock.pendingSleeps.isEmpty)
  }

  @Test func `an error in time is handed on`() async {
    await #expect(throws: Offline.self) {
      try await withTimeout(.seconds(5), clock: clock) { throw Offline() }
    }
    #expect(clock.pendingSleeps.isEmpty)
  }

  @Test func `when the time is up the operation is cancelled`() async throws {
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

  @Test func `it is not cancelled before the time is up`() async throws {
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

  @Test func `an operation that ignores its cancellation is waited for, and timed out still`()
    async throws
  {
    let ended = Log<Int>()
    let (stream, continuation) = AsyncStream.makeStream(of: Int.self)
    let outcome = try await outcome { [clock] in
      try await withTimeout(.seconds(5), clock: clock) {
        // A task of its own, which no cancellation reaches.
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

  @Test func `what is left of a cancelled operation is not its result`() async throws {
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
  func `without any time the operation is not begun`(limit: Duration) async {
    await #expect(throws: TimeoutError(limit: limit)) {
      try await withTimeout(limit, clock: clock) { Issue.record("It was begun.") }
    }
  }

  @Test func `the longest limit does not trap`() async throws {
    #expect(try await withTimeout(Duration(attoseconds: .max)) { 42 } == 42)
  }

  @Test func `cancelling the task cancels the operation, which is no timeout`() async throws {
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

  @Test func `the operation of a cancelled task may still succeed`() async throws {
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

  @Test func `it works on an actor's state, with a result that is not Sendable`() async throws {
    let counter = CountingActor()
    #expect(try await counter.result(clock) == 1)
    let outcome = try await outcome { [clock] in
      try await counter.countTooSlowly(clock)
    } while: { _ in
      try await clock.waitForSleepers(count: 2)
      clock.advance(by: .seconds(5))
    }
    #expect(throws: TimeoutError.self) { try outcome.get() }
    #expect(await counter.count == 2)
  }

  @Test func `it keeps to the executor of a virtual time`() async throws {
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

  @Test @MainActor func `it stays on the main actor`() async throws {
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

  @Test func `of two that come at the same instant the operation is first`() async throws {
    try await withVirtualTime { time in
      try await withTimeout(.seconds(5), clock: time.clock) {
        try await time.clock.sleep(for: .seconds(5))
      }
    }
  }

  @Test func `an operation that does not suspend begins no sleep, and is timed out all the same`()
    async throws
  {
    let clock = InstantClock()
    #expect(try await withTimeout(.seconds(5), clock: clock) { 42 } == 42)
    await #expect(throws: TimeoutError.self) {
      try await withTimeout(.seconds(5), clock: clock) { clock.advance(by: .seconds(6)) }
    }
    #expect(clock.sleeps == [])
  }

  @Test func `the limit counts from the beginning, whenever the operation first suspends`()
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

  @Test func `an operation that suspends when its time is up already is cancelled at once`()
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

  @Test func `the operation of a cancelled task has all the time it wants`() async throws {
    try await withVirtualTime { time in
      let value = try await withThrowingTaskGroup { group in
        group.addTask {
          try await withTimeout(.seconds(5), clock: time.clock) {
            try? await time.clock.sleep(for: .seconds(60))
            // A task of its own, which no cancellation reaches.
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
  func `on a system clock, too, an operation is cancelled when its time is up`(
    timer: SystemTimer
  ) async throws {
    // Its own clock does not move: that the time is up it can learn from the system's alone.
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

  @Test func `the task that stands for another hands on cancellation and waits`() async {
    // What `withTimeout` starts where a child task can't begin at once.
    let task = Task { while !Task.isCancelled { await Task.yield() } }
    await withTaskGroup(of: Void.self) { group in
      group.addTask { await TimeoutRace.wait(for: task) }
      group.cancelAll()
    }
    #expect(task.isCancelled)
  }

  @Test func `a timeout says how long it was and what to do`() {
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
