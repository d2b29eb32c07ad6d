import SteadfastRetry

#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
public import Foundation
#endif

/// A clock to sleep on that also tells the date.
///
/// A queue persists dates, because they outlive the process and the machine's uptime, and sleeps
/// on instants, because those never jump. ``SystemClock`` is what a program uses; a test uses a
/// clock that it moves by hand.
public protocol WallClock<Duration>: Clock where Duration == Swift.Duration {
  /// The date now, as the user's calendar and other machines know it.
  ///
  /// Unlike `now` it may jump in both directions.
  var date: Date { get }

  /// Suspends until the clock's date is this one or later.
  ///
  /// By default it looks at the date at least once a minute, so that a system clock that was set,
  /// or a machine that was suspended, is noticed. It returns at once if the date is there.
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
      // A nanosecond at least: less may be lost when it is added to an instant.
      try await wait(for: .seconds(min(max(seconds, 1e-9), 60)))
    }
  }
}
