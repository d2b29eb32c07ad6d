import Foundation
import SteadfastRetry
import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

@Suite struct QueueStatisticsTests {
  @Test func `printed times are rounded`() {
    var times = DurationHistogram()
    #expect("\(times)" == "0.0 ms on average, 0.0 ms at most")
    times.add(.nanoseconds(70_784))
    times.add(.nanoseconds(166_264_369))
    #expect("\(times)" == "83.168 ms on average, 166.264 ms at most")
    times.add(.seconds(90.123456))
    #expect("\(times)" == "30.097 s on average, 90.123 s at most")
  }

  @Test func `percentiles differ from the exact ones by at most nine percent`() {
    var generator = SplitMix64(seed: 11)
    for _ in 0..<50 {
      var times = DurationHistogram()
      var exact: [Double] = []
      for _ in 0..<Int.random(in: 1...300, using: &generator) {
        // From a microsecond to a month.
        let seconds = pow(10, Double.random(in: -6...6.4, using: &generator))
        times.add(.seconds(seconds))
        exact.append(seconds)
      }
      exact.sort()
      for part in [0, 0.25, 0.5, 0.9, 0.99, 1] {
        let rank = max(1, Int((part * Double(exact.count)).rounded(.up)))
        let ratio = times.percentile(part) / .seconds(1) / exact[rank - 1]
        #expect(ratio > 1 / 1.0906 && ratio < 1.0906, "\(part) of \(exact.count)")
      }
      #expect(times.percentile(1) <= times.longest)
      #expect(times.percentile(.nan) == times.percentile(0))
      #expect(times.percentile(-1) == times.percentile(0))
      #expect(times.percentile(.infinity) == times.percentile(1))
    }
  }

  @Test func `durations outside all intervals are counted`() {
    var times = DurationHistogram()
    #expect(times.percentile(0.5) == .zero)
    for time: Duration in [.seconds(-5), .zero, .nanoseconds(1), .seconds(Int64.max)] {
      times.add(time)
    }
    #expect(times.count == 4)
    #expect(times.percentile(0.75) < .microseconds(1))
    #expect(times.percentile(1) > .seconds(Int64.max / 2))
  }

  @Test(.virtualTime) func `tasks are counted by name, and the total is their sum`() async throws {
    let clock = try #require(VirtualTime.current).clock
    let queue = TaskQueue(
      persistence: InMemoryStore(),
      configuration: TaskQueueConfiguration(
        backoff: .constant(.seconds(1)),
        taskDefaults: TaskOptions(maxRetries: 1)
      ),
      clock: clock
    )
    await queue.register(name: "good") { _, _ in try await clock.sleep(for: .seconds(4)) }
    await queue.register(name: "bad") { _, _ -> Void in throw Failure() }
    await queue.register(name: "late") { _, _ -> Void in throw TaskSnoozed(for: .seconds(60)) }
    for name in ["good", "good", "bad", "late"] {
      try await queue.enqueue(name: name)
    }
    try await queue.enqueue(
      name: "expired",
      options: TaskOptions(expiryDate: clock.date + 1)
    )
    await queue.register(name: "expired") { _, _ in }
    clock.advance(by: .seconds(2))
    try await queue.enqueue(name: "unattempted").cancel()
    try await withRunning(queue) {
      try await clock.sleep(for: .seconds(30))
    }
    let statistics = try await queue.statistics
    #expect(Set(statistics.byName.keys) == ["good", "bad", "late", "expired"])
    let good = try #require(statistics.byName["good"])
    #expect(good.attempts == 2 && good.succeeded == 2)
    #expect(good.runTime.total == .seconds(8) && good.runTime.count == 2)
    #expect(good.waitTime.longest >= .seconds(4))
    let bad = try #require(statistics.byName["bad"])
    #expect(bad.attempts == 2 && bad.failed == 1 && bad.abandoned == 1)
    #expect(statistics.byName["late"]?.snoozed == 1)
    let expired = try #require(statistics.byName["expired"])
    #expect(expired.attempts == 0 && expired.abandoned == 1)
    #expect(statistics.attempts == 5 && statistics.total.abandoned == 2)
    #expect(statistics.runTime.total == .seconds(8) && statistics.runTime.count == 5)
  }

  @Test func `after many names, all further ones are counted together`() {
    var tally = QueueStatistics.Tally(since: .now)
    for number in 0..<1_010 { tally.countAttempt(of: "task \(number)", afterWaiting: .zero) }
    tally.countAttempt(of: "task 3", afterWaiting: .zero)
    let statistics = tally.statistics
    #expect(statistics.byName.count == 1_001)
    #expect(statistics.byName[""]?.attempts == 10 && statistics.byName["task 3"]?.attempts == 2)
    #expect(statistics.attempts == 1_011 && tally.workCount == 1_011)
  }

  private struct Failure: Error {}
}
