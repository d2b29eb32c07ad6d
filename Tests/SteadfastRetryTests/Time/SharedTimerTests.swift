import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastRetry

@Suite(.virtualTime) struct SharedTimerTests {
  private let time: VirtualTime
  private let timer: SharedTimer
  private let log = Log<String>()

  init() throws {
    time = try #require(VirtualTime.current)
    timer = SharedTimer(time.clock, executor: time.executor)
  }

  private var seconds: Double { time.clock.now.offset / .seconds(1) }

  /// Waits until the timer is idle, and expects that this takes at most about a minute.
  private func expectTimerToBecomeIdle() async throws {
    let start = time.clock.now
    while timer.sleepCount > 0 { try await time.clock.sleep(for: .seconds(1)) }
    #expect(start.duration(to: time.clock.now) <= .seconds(61))
    #expect(timer.count == 0)
    #expect(time.clock.pendingSleeps.isEmpty)
  }

  @Test func `all sleeps share one sleep of the clock, and end at their deadlines in order`()
    async throws
  {
    try await withThrowingTaskGroup(of: Void.self) { group in
      for delay in [10, 20, 10, 30] {
        group.addTask { [timer, log] in
          try await timer.sleep(for: .seconds(delay))
          log.add("\(delay) at \(seconds)")
        }
      }
      try await time.clock.sleep(for: .seconds(5))
      #expect(timer.count == 4)
      #expect(timer.sleepCount == 1)
      try await group.waitForAll()
    }
    #expect(log.entries == ["10 at 10.0", "10 at 10.0", "20 at 20.0", "30 at 30.0"])
    try await expectTimerToBecomeIdle()
  }

  @Test func `a cancelled sleep is removed from the timer at once`() async throws {
    for _ in 0..<100 {
      await withThrowingTaskGroup(of: Void.self) { group in
        group.addTask { [timer] in try await timer.sleep(for: .seconds(3_600)) }
        try? await time.clock.sleep(for: .milliseconds(1))
        #expect(timer.count == 1)
        group.cancelAll()
        await #expect(throws: CancellationError.self) { try await group.next() }
      }
      #expect(timer.count == 0)
    }
    #expect(timer.sleepCount == 1)
    #expect(seconds < 1)
    try await expectTimerToBecomeIdle()
  }

  @Test(arguments: [Duration.seconds(60), .zero])
  func `a sleep in a cancelled task throws at once`(delay: Duration) async throws {
    await withThrowingTaskGroup(of: Void.self) { group in
      group.cancelAll()
      group.addTask { [timer] in try await timer.sleep(for: delay) }
      await #expect(throws: CancellationError.self) { try await group.next() }
    }
    #expect(timer.count == 0)
    #expect(timer.sleepCount == 0)
  }

  @Test func `a sleep of zero or less ends without the timer`() async throws {
    try await timer.sleep(for: .zero)
    try await timer.sleep(for: .seconds(-1))
    #expect(timer.sleepCount == 0)
  }

  /// Runs an operation that sleeps for `seconds`, and returns whether it ends within a limit.
  ///
  /// The limit uses the shared timer.
  private func operationEndsInTime(
    sleepingFor seconds: Double,
    within limit: Duration,
    cancellingAfter cancellation: Duration? = nil
  ) async throws -> Bool {
    let race = TimeoutRace()
    var clock = RetryTimer(time.clock)
    clock.start()
    return try await withThrowingTaskGroup { outer in
      outer.addTask { [clock, time, timer, log] in
        await withTaskGroup(of: Void.self) { group in
          group.addTask {
            do {
              try await time.clock.sleep(for: .seconds(seconds))
              log.add("done")
            } catch {
              log.add("cut short at \(self.seconds)")
            }
            // An unstructured task, which is not cancelled with its creator.
            await Task(executorPreference: time.executor) {
              try? await time.clock.sleep(for: .seconds(10))
            }.value
            race.end(.operation)
          }
          return await race.isWonByOperation(within: limit, of: clock, on: timer, in: &group)
        }
      }
      if let cancellation {
        try await time.clock.sleep(for: cancellation)
        outer.cancelAll()
      }
      return try await outer.next() == true
    }
  }

  @Test func `a limit that is not reached is removed from the timer at once`() async throws {
    for _ in 0..<100 {
      #expect(try await operationEndsInTime(sleepingFor: 1, within: .seconds(3_600)))
      #expect(timer.count == 0)
      #expect(timer.sleepCount <= 1)
    }
    try await expectTimerToBecomeIdle()
  }

  @Test func `an operation is cancelled when its limit expires, and is still awaited`()
    async throws
  {
    #expect(try await !operationEndsInTime(sleepingFor: 3_600, within: .seconds(20)))
    #expect(log.entries == ["cut short at 20.0"])
    #expect(seconds == 30)
    #expect(timer.count == 0)
  }

  @Test func `a limit counts from the start of the operation, not from its first suspension`()
    async throws
  {
    let race = TimeoutRace()
    var clock = RetryTimer(time.clock)
    clock.start()
    // The operation runs this long before its first suspension, and never ends.
    try await time.clock.sleep(for: .seconds(3))
    let isInTime = await withTaskGroup(of: Void.self) { [clock] group in
      await race.isWonByOperation(within: .seconds(5), of: clock, on: timer, in: &group)
    }
    #expect(!isInTime)
    #expect(seconds == 5)
    #expect(timer.count == 0)
  }

  @Test func `the operation of a cancelled task has no limit`() async throws {
    #expect(
      try await operationEndsInTime(
        sleepingFor: 3_600,
        within: .seconds(20),
        cancellingAfter: .seconds(15)
      )
    )
    #expect(log.entries == ["cut short at 15.0"])
    #expect(seconds == 25)
    #expect(timer.count == 0)
  }

  @Test func `each of many operations has its own limit`() async throws {
    try await withThrowingTaskGroup(of: Void.self) { group in
      for limit in [50, 5, 20, 100, 1] {
        group.addTask { [timer, log] in
          let race = TimeoutRace()
          _ = timer.add(.limit(race), after: .seconds(limit))
          #expect(await race.firstEnding == .timeIsUp)
          log.add("\(limit) at \(seconds)")
        }
      }
      try await group.waitForAll()
    }
    #expect(log.entries == ["1 at 1.0", "5 at 5.0", "20 at 20.0", "50 at 50.0", "100 at 100.0"])
  }

  @Test(arguments: [[TimeoutRace.Ending.operation, .timeIsUp], [.timeIsUp, .operation]])
  func `of two calls of end(), only the first counts`(endings: [TimeoutRace.Ending]) async {
    let race = TimeoutRace()
    for ending in endings { race.end(ending) }
    #expect(await race.firstEnding == endings[0])
  }
}
