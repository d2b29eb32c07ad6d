import SteadfastRetry

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// A queue's clock, and the time on it since the queue was made.
struct QueueTime: Sendable {
  let clock: any WallClock
  /// The time since the queue was made, as the clock measures durations.
  let stopwatch: @Sendable () -> Duration

  init(_ clock: some WallClock) {
    self.clock = clock
    // Most queues have this clock, and read it twice for each attempt: without a generic call.
    if clock is ContinuousClock {
      let start = ContinuousClock.now
      stopwatch = { start.duration(to: .now) }
    } else {
      let start = clock.now
      stopwatch = { start.duration(to: clock.now) }
    }
  }

  /// Returns when a budget is used up, by the stopwatch; one below zero is so at once.
  func deadline(after budget: Duration) -> Duration {
    stopwatch() + min(max(budget, .zero), .longestStorable)
  }

  /// The date, as stores keep dates.
  var now: Date { clock.date.storable }
}
