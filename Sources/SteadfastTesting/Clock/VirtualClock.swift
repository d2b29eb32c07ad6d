import SteadfastRetry
import Synchronization

#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
public import Foundation
#endif

/// A clock whose time moves only when a test moves it.
///
/// Hand it to the code under test in place of the system's clock, wait until that code sleeps,
/// and move the time:
/// ```swift
/// let clock = VirtualClock()
/// async let reply = withRetry(.attempts(2, backoff: .constant(.seconds(60))), clock: clock) {
///   try await fetch()
/// }
/// try await clock.waitForSleepers(count: 1)
/// clock.advance(by: .seconds(60))
/// ```
/// Woken tasks are handed to their executors in order, but run as those see fit, beside the code
/// that advanced the clock.
public final class VirtualClock: WallClock, Sendable {
  let state: Mutex<VirtualClockState>

  /// A clock at its beginning, whose date there is `date`.
  ///
  /// Left out, it is midnight UTC on 1 January 2001: the same for each test, and `Date` holds
  /// fractions of seconds best there.
  public init(date: Date = Date(timeIntervalSinceReferenceDate: 0)) {
    state = Mutex(VirtualClockState(date: date))
  }

  /// The instant at which the clock stands.
  public var now: Instant { state.withLock { $0.now } }

  /// One attosecond: deadlines are kept as they were given.
  public var minimumResolution: Duration { Duration(attoseconds: 1) }

  /// The date, which moves along with ``now`` from where it was set.
  public var date: Date { state.withLock { $0.date } }

  /// Steps the date, forwards or backwards, and leaves ``now`` and all sleeps as they are.
  ///
  /// This is what the code under test sees when a user sets the system's clock, or when a
  /// machine wakes after hours of suspension.
  public func setDate(_ date: Date) { state.withLock { $0.date = date } }

  /// Suspends until the clock is moved to `deadline` or past it.
  ///
  /// Returns at once if the clock is there already. `tolerance` is ignored: each sleep ends at
  /// its deadline. Costs O(log n) with n sleeps pending.
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
