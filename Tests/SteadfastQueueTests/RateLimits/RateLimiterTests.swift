import SteadfastRetry
import TestSupport
import Testing

@testable import SteadfastQueue

@Suite struct RateLimiterTests {
  /// Whether every interval of a window's length has at most as many starts as the window allows.
  private static func complies(_ starts: [Int64], _ windows: [RateWindow]) -> Bool {
    windows.allSatisfy { window in
      starts.indices.dropFirst(window.count).allSatisfy {
        starts[$0] - starts[$0 - window.count] >= window.interval
      }
    }
  }

  /// Random limits, with starts at random times.
  @Test(arguments: 0..<4 as Range<UInt64>)
  func `the limiter allows exactly as many starts as its limits allow`(seed: UInt64) {
    var random = SplitMix64(seed: seed)
    var mistakes = 0
    for _ in 0..<Soak.runs(short: 5_000) {
      let windows = (0...Int.random(in: 0...1, using: &random)).map { _ in
        RateWindow(
          Int.random(in: 1...4, using: &random),
          per: .microseconds(Int.random(in: 1...30, using: &random))
        )
      }
      let longest = windows.map(\.interval).max() ?? 0
      var limiter = RateLimiter(windows: windows, history: StartHistory())
      var (all, now): ([Int64], Int64) = ([], 1_000)
      for _ in 0..<5 {
        now += Int64.random(in: 0...20, using: &random)
        limiter.history.trim(to: windows, at: now)
        let (room, next) = (limiter.remainingStarts(at: now), limiter.nextStart(from: now))
        // The limits allow as many starts as the limiter says, and not one more.
        let full = all + Array(repeating: now, count: room)
        if !Self.complies(full, windows) || Self.complies(full + [now], windows) { mistakes += 1 }
        // The next start is the earliest date with capacity.
        if room > 0 ? next != now : next <= now || next > now + longest { mistakes += 1 }
        if limiter.remainingStarts(at: next) == 0 { mistakes += 1 }
        if next > now, limiter.remainingStarts(at: next - 1) > 0 { mistakes += 1 }
        for _ in 0..<Int.random(in: 0...room, using: &random) {
          limiter.history.addStart(at: now)
          all.append(now)
        }
      }
      var histories = StartHistories()
      histories[seed] = limiter.history
      if StartHistories(histories.bytes) != histories { mistakes += 1 }
    }
    #expect(mistakes == 0)
  }

  @Test(arguments: [
    (1, Duration.seconds(1), 1, 1_000_000 as Int64),
    (1_024, .seconds(1), 1_024, 1_000_000),
    (1_025, .seconds(1), 512, 500_000),
    (100_000, .seconds(98), 1_020, 1_000_000),
    (3, .nanoseconds(1), 3, 1),
    (10, .milliseconds(1) + .nanoseconds(1), 10, 1_001),
  ])
  func `a limit of more than 1,024 starts is divided into shorter intervals, which are rounded up`(
    count: Int,
    interval: Duration,
    windowCount: Int,
    microseconds: Int64
  ) {
    let window = RateWindow(count, per: interval)
    #expect(window.count == windowCount && window.interval == microseconds)
    // Together, the shorter intervals aren't shorter than the limit's, and allow no more starts.
    let parts = (count + RateWindow.maxCount - 1) / RateWindow.maxCount
    #expect(window.count * parts <= count)
    #expect(.microseconds(window.interval * Int64(parts)) >= interval)
  }

  @Test func `nothing starts during a pause, and a shorter pause does not end a longer one`() {
    let windows = [RateWindow(2, per: .seconds(1))]
    var limiter = RateLimiter(windows: windows, history: StartHistory())
    limiter.history.pause(from: 100, until: 500)
    limiter.history.pause(from: 200, until: 300)
    limiter.history.pause(from: 200, until: 100)
    #expect(limiter.remainingStarts(at: 499) == 0 && limiter.nextStart(from: 200) == 500)
    #expect(limiter.remainingStarts(at: 500) == 2 && limiter.nextStart(from: 600) == 600)
    limiter.history.trim(to: windows, at: 500)
    #expect(limiter.history.isEmpty)
  }

  @Test func `if the clock is set back, dates beyond the tolerance are moved back too`() {
    var history = StartHistory(
      starts: [10, 5_000, 9_000],
      pause: StartHistory.Pause(begin: 9_000, end: 9_500)
    )
    let before = history
    history.rebase(to: 1_000, at: 1_000, tolerance: 8_000)
    #expect(history == before)
    history.rebase(to: 999, at: 999, tolerance: 8_000)
    #expect(history.starts == [10, 999, 999])
    #expect(history.pause == StartHistory.Pause(begin: 999, end: 1_499))
  }

  @Test func `a start by a lagging clock counts as simultaneous with the last start`() {
    var history = StartHistory(starts: [1_000])
    history.addStart(at: 900)
    #expect(history.starts == [1_000, 1_000])
  }
}

@Suite struct StartHistoriesTests {
  @Test func `histories are the same after they were written and read`() {
    var histories = StartHistories()
    histories[0] = StartHistory(
      starts: (0..<1_024).map { 1_700_000_000_000_000 + $0 * 100_000 },
      pause: StartHistory.Pause(begin: 1, end: 1 << 60)
    )
    histories[.max] = StartHistory(starts: [0])
    histories[7] = StartHistory(pause: StartHistory.Pause(begin: 0, end: 1))
    histories[8] = StartHistory()
    let bytes = histories.bytes
    #expect(StartHistories(bytes) == histories)
    #expect(histories.histories.count == 3)
    #expect(bytes?.count ?? 0 <= histories.maxByteCount)
    // With a start every tenth of a second, each start needs three bytes.
    #expect(bytes?.count ?? 0 < 3_200)
    #expect(StartHistories(nil) == StartHistories() && StartHistories().bytes == nil)
  }

  @Test func `invalid bytes are rejected, and none crash the process`() {
    var histories = StartHistories()
    histories[9] = StartHistory(starts: [5, 300, 70_000])
    let bytes = histories.bytes ?? []
    for length in 0..<bytes.count where length != 1 {
      #expect(StartHistories(Array(bytes.prefix(length))) == nil)
    }
    for index in bytes.indices {
      for value in UInt8.min...UInt8.max {
        var changed = bytes
        changed[index] = value
        // Bytes that can be read can be written again.
        guard let read = StartHistories(changed) else { continue }
        #expect(StartHistories(read.bytes) == read)
      }
    }
    #expect(StartHistories([2]) == nil && StartHistories([]) == nil)
  }
}
