import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

@Suite(.virtualTime) struct DateTimerTests {
  private let time: VirtualTime
  private let timer = DateTimer()
  private let rings = Log<Int>()

  init() throws { time = try #require(VirtualTime.current) }

  private func withRunningTimer(_ body: @Sendable () async throws -> Void) async rethrows {
    try await withThrowingTaskGroup(of: Void.self) { group in
      group.addTask { [timer, time, rings] in
        await timer.run(on: time.clock) { rings.add(time.second) }
      }
      try await body()
      group.cancelAll()
    }
  }

  private func setTimer(secondsFromNow seconds: Double) { timer.set(time.clock.date + seconds) }

  @Test func `the timer fires once, at the earliest of several dates`() async throws {
    try await withRunningTimer {
      setTimer(secondsFromNow: 90)
      setTimer(secondsFromNow: 30)
      setTimer(secondsFromNow: 60)
      try await time.clock.sleep(for: .seconds(1_000))
    }
    #expect(rings.entries == [30])
  }

  @Test(arguments: [0, 1])
  func `the timer fires within a minute if the clock was set back after a date was computed`(
    lookCount: Int
  ) async throws {
    try await withRunningTimer {
      if lookCount > 0 { setTimer(secondsFromNow: 1) }
      try await time.clock.sleep(for: .seconds(10))
      let now = time.clock.date + 86_400
      timer.set(now + 600, from: now)
      try await time.clock.sleep(for: .seconds(100))
    }
    #expect(rings.entries.last == 10)
  }

  @Test func `an earlier date cuts a long sleep short`() async throws {
    try await withRunningTimer {
      setTimer(secondsFromNow: 86_400)
      try await time.clock.sleep(for: .seconds(3_600))
      setTimer(secondsFromNow: 5)
      try await time.clock.sleep(for: .seconds(100))
    }
    #expect(rings.entries == [3_605])
  }

  @Test func `a date that is set while the timer fires takes effect`() async throws {
    try await withThrowingTaskGroup(of: Void.self) { group in
      group.addTask { [timer, time, rings] in
        await timer.run(on: time.clock) {
          rings.add(time.second)
          if rings.entries.count < 4 { timer.set(time.clock.date + 600) }
        }
      }
      setTimer(secondsFromNow: 600)
      try await time.clock.sleep(for: .seconds(86_400))
      group.cancelAll()
    }
    #expect(rings.entries == [600, 1_200, 1_800, 2_400])
  }

  @Test func `a forward jump of the clock is detected within a minute`() async throws {
    try await withRunningTimer {
      setTimer(secondsFromNow: 86_400)
      try await time.clock.sleep(for: .seconds(30))
      time.clock.setDate(time.clock.date + 90_000)
      try await time.clock.sleep(for: .seconds(100))
    }
    #expect(rings.entries == [60])
  }

  @Test func `when the clock moves back, the timer fires within a minute, and again at the date`()
    async throws
  {
    try await withRunningTimer {
      setTimer(secondsFromNow: 300)
      try await time.clock.sleep(for: .seconds(30))
      time.clock.setDate(time.clock.date - 600)
      try await time.clock.sleep(for: .seconds(2_000))
    }
    #expect(rings.entries == [60, 900])
  }

  @Test
  func `the timer doesn't fire before its date, even if the date is a month away`() async throws {
    try await withRunningTimer {
      setTimer(secondsFromNow: 30 * 86_400)
      try await time.clock.sleep(for: .seconds(31 * 86_400))
    }
    #expect(rings.entries == [30 * 86_400])
  }
}

extension VirtualTime {
  /// The current time in whole seconds, because dates aren't exact below a microsecond.
  fileprivate var second: Int { Int((clock.now.offset / .seconds(1)).rounded()) }
}
