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
  /// The thread that keeps deadlines; `nil` on a clock that is not the system's.
  let deadlineThread: DeadlineThread?

  init(_ clock: some WallClock) {
    self.clock = clock
    deadlineThread = clock is ContinuousClock ? .shared : nil
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

  /// The executor of code that keeps a deadline while handlers may occupy all of Swift's threads.
  ///
  /// It is `nil` where the caller's own executor does: on another clock, and in virtual time.
  var deadlineExecutor: (any TaskExecutor)? { RealWork.observer == nil ? deadlineThread : nil }

  /// Suspends for the delay; on the system's clock, busy handlers do not prolong it.
  /// - Throws: `CancellationError` as soon as the task is cancelled.
  nonisolated(nonsending) func wait(for delay: Duration) async throws {
    guard let deadlineThread else { return try await clock.wait(for: delay) }
    try await deadlineThread.sleep(for: delay)
  }

  /// The date, as stores keep dates.
  var now: Date { clock.date.storable }
}
