import SteadfastRetry
import Synchronization

#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
public import Foundation
#endif

/// A clock whose time moves only when a test moves it.
///
/// Pass it to the code under test in place of the system's clock, wait until that code sleeps,
/// and move the time:
/// ```swift
/// let clock = VirtualClock()
/// let policy = RetryPolicy.attempts(2, backoff: .constant(.seconds(60)))
/// async let reply = withRetry(policy, clock: clock) {
///   try await fetch()
/// }
/// try await clock.waitForSleepers(count: 1)
/// clock.advance(by: .seconds(60))
/// ```
/// Woken tasks are passed to their executors in order. The executors decide when they run, possibly
/// while the code that advanced the clock goes on.
public final class VirtualClock: WallClock, Sendable {
  let state: Mutex<VirtualClockState>

  /// Makes a clock at its beginning, where its date is `date`.
  ///
  /// By default the date is midnight UTC on 1 January 2001. It is the same for each test, and
  /// `Date` holds fractions of seconds best there.
  public init(date: Date = Date(timeIntervalSinceReferenceDate: 0)) {
    state = Mutex(VirtualClockState(date: date))
  }

  /// The clock's current instant.
  public var now: Instant { state.withLock { $0.now } }

  /// One attosecond: deadlines are not rounded.
  public var minimumResolution: Duration { Duration(attoseconds: 1) }

  /// The clock's date, which moves along with ``now`` from the date that was set last.
  public var date: Date { state.withLock { $0.date } }

  /// Sets the date, forwards or backwards, and leaves ``now`` and all sleeps as they are.
  ///
  /// The code under test sees the same when a user sets the system's clock, or when a machine wakes
  /// after hours of suspension.
  public func setDate(_ date: Date) { state.withLock { $0.date = date } }

  /// Suspends until the clock is moved to `deadline` or past it.
  ///
  /// Returns at once if the clock is there already. `tolerance` is ignored: each sleep ends at
  /// its deadline. The cost is O(log n) with n pending sleeps.
  /// - Throws: `CancellationError` as soon as the task is cancelled, or if it was before.
  public func sleep(until deadline: Instant, tolerance: Duration? = nil) async throws {
    try Task.checkCancellation()
    try await CancellableSuspension.suspend { continuation in
      let sleeper = Sleeper(continuation)
      return state.withLock { state in
        guard deadline > state.now else { return (nil, [continuation]) }
        return state.addSleeper(sleeper, deadline: deadline)
      }
    } withdraw: { ticket in
      state.withLock { $0.removeSleeper(ticket) }
    }
  }
}
