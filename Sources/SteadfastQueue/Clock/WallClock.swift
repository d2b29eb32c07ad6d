import SteadfastRetry

#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
public import Foundation
#endif

/// A clock to sleep on that also tells the date.
///
/// A queue stores dates, because they outlive the process and the machine's uptime. It sleeps on
/// instants, because those never jump. A program uses `ContinuousClock`. A test uses a clock that
/// it moves by hand.
public protocol WallClock<Duration>: Clock where Duration == Swift.Duration {
  /// The current date, as the user's calendar and other machines know it.
  ///
  /// Unlike `now`, it may jump in both directions.
  var date: Date { get }

  /// Suspends until the clock's date is this one or later.
  ///
  /// By default, it looks at the date at least once a minute. So it notices that the system clock
  /// was set, or that the machine was suspended. It returns at once if the date has come.
  /// - Throws: `CancellationError` when the task is cancelled.
  nonisolated(nonsending) func sleep(untilDate date: Date) async throws
}

extension WallClock {
  /// Suspends until the clock's date is this one or later, looking at it at least once a minute.
  public func sleep(untilDate end: Date) async throws {
    try Task.checkCancellation()
    while true {
      let seconds = end.timeIntervalSince(date)
      guard seconds > 0 else { return }
      // Waits at least a nanosecond: less may be lost when it is added to an instant.
      try await wait(for: .seconds(min(max(seconds, 1e-9), 60)))
    }
  }
}
