import SteadfastQueue
import SteadfastRetry
import Synchronization
public import SystemFoundation

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
/// Advancing the clock passes the woken tasks to their executors in order. The executors decide
/// when the tasks run, possibly while the code that advanced the clock continues.
public final class VirtualClock: WallClock, Sendable {
  let state: Mutex<VirtualClockState>

  /// Makes a clock with `date` as its date, and with the instant zero.
  ///
  /// By default the date is midnight UTC on 1 January 2001, near which `Date` is most precise.
  public init(date: Date = Date(timeIntervalSinceReferenceDate: 0)) {
    state = Mutex(VirtualClockState(date: date))
  }

  /// The clock's current instant.
  public var now: Instant { state.withLock { $0.now } }

  /// One attosecond: deadlines are not rounded.
  public var minimumResolution: Duration { Duration(attoseconds: 1) }

  /// The clock's date, which advances with ``now`` from the date that was set last.
  public var date: Date { state.withLock { $0.date } }

  /// Sets the date, forwards or backwards, without changing ``now`` or any sleep.
  ///
  /// Use it to test what happens when a user sets the system's clock, or when a machine wakes after
  /// hours of suspension.
  public func setDate(_ date: Date) { state.withLock { $0.date = date } }

  /// Suspends until the clock is moved to `deadline` or past it.
  ///
  /// Returns at once if the clock has reached the deadline. `tolerance` is ignored: each sleep ends
  /// at its deadline. The cost is O(log n) with n pending sleeps.
  /// - Throws: `CancellationError` as soon as the task is cancelled, or if it already is.
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

extension VirtualClock {
  /// A point in the time of a ``VirtualClock``, as an offset from the clock's zero instant.
  public struct Instant: InstantProtocol, CustomStringConvertible {
    /// The time since the clock's zero instant; negative for an instant before it.
    public var offset: Duration

    /// Makes the instant at this offset from the clock's zero instant.
    public init(offset: Duration = .zero) { self.offset = offset }

    /// Returns the instant this much later, clamped to the first and the last instant.
    public func advanced(by duration: Duration) -> Instant {
      let (sum, overflow) = offset.attoseconds.addingReportingOverflow(duration.attoseconds)
      guard overflow else { return Instant(offset: Duration(attoseconds: sum)) }
      return duration < .zero ? .first : .last
    }

    /// Returns the time from this instant to the other, clamped to the range of `Duration`.
    public func duration(to other: Instant) -> Duration {
      let (difference, overflow) =
        other.offset.attoseconds.subtractingReportingOverflow(offset.attoseconds)
      guard overflow else { return Duration(attoseconds: difference) }
      return other < self ? Instant.first.offset : Instant.last.offset
    }

    /// The offset in seconds, such as `60.0 seconds`.
    public var description: String { offset.description }

    /// Returns whether the left instant comes before the right one.
    public static func < (left: Instant, right: Instant) -> Bool { left.offset < right.offset }

    static let first = Instant(offset: Duration(attoseconds: .min))
    static let last = Instant(offset: Duration(attoseconds: .max))
  }
}

extension VirtualClock {
  /// A task that sleeps on a ``VirtualClock``.
  public struct PendingSleep: Sendable, Hashable {
    /// The instant at which the task wakes.
    public let deadline: Instant
    /// The name of the task, if it has one and the platform makes it available.
    public let taskName: String?
  }
}

extension VirtualClock {
  /// Moves the time forward by `duration` and wakes every sleeper that is due by then.
  ///
  /// This method works like ``advance(to:)``. Two concurrent calls may start from the same instant;
  /// then only the longer duration has an effect. A negative duration is a programming error: only
  /// the date can be set backwards, with ``setDate(_:)``.
  public func advance(by duration: Duration) {
    guard duration >= .zero else {
      preconditionFailure(
        "VirtualClock.advance(by: \(duration)) would move the time backwards; "
          + "to step the date backwards, call setDate(_:)"
      )
    }
    advance(to: now.advanced(by: duration))
  }

  /// Moves the time forward to `instant` and wakes every sleeper that is due by then.
  ///
  /// Sleepers wake in the order of their deadlines; those with the same deadline wake in the order
  /// in which they went to sleep. When a sleeper wakes, ``now`` is its deadline. This method does
  /// not wait for the woken tasks. If a woken task goes to sleep again after this call has reached
  /// the instant, this call does not wake it. An instant in the past has no effect. The cost is
  /// O(log n) for each sleeper.
  public func advance(to instant: Instant) {
    while let sleeper = state.withLock({ $0.advance(to: instant) }) { sleeper.resume() }
  }

  /// The sleeps that have not ended, in the order in which they will end.
  public var pendingSleeps: [PendingSleep] {
    state.withLock { $0.sleepers.sorted }.map { deadline, sleeper in
      PendingSleep(deadline: deadline, taskName: sleeper.taskName)
    }
  }

  /// The earliest deadline of all pending sleeps; `nil` if nothing sleeps.
  public var nextDeadline: Instant? { state.withLock { $0.sleepers.firstDeadline } }

  /// Suspends until at least `count` sleeps are pending on this clock at once.
  ///
  /// Returns at once if they already are. The method does not poll: each new sleep notifies it.
  /// - Throws: `CancellationError` as soon as the task is cancelled, or if it already is.
  public func waitForSleepers(count: Int = 1) async throws {
    try Task.checkCancellation()
    try await CancellableSuspension.suspend { continuation in
      state.withLock { state in
        guard state.sleepers.count < count else { return (nil, [continuation]) }
        return (state.addWaiter(continuation, count: count), [])
      }
    } withdraw: { waiter in
      state.withLock { $0.removeWaiter(waiter) }
    }
  }

  /// Moves the time to the first pending deadline, and wakes the first sleeper that is due then.
  ///
  /// Does nothing and returns false if no deadline is at or before `limit`.
  func wakeFirstSleeper(through limit: Instant) -> Bool {
    guard let sleeper = state.withLock({ $0.wakeFirst(through: limit) }) else { return false }
    sleeper.resume()
    return true
  }

  /// Ends every pending sleep with a `CancellationError`, in order, without moving the time.
  func cancelSleeps() {
    while let sleeper = state.withLock({ $0.removeFirstSleeper() }) {
      sleeper.resume(throwing: CancellationError())
    }
  }
}

/// The state that a ``VirtualClock`` guards with its lock: time, date, sleepers and waiters.
///
/// If a method returns continuations, the caller must resume each of them once, after releasing the
/// lock.
struct VirtualClockState {
  typealias Continuation = CheckedContinuation<Void, any Error>

  private struct Waiter {
    let id: UInt64
    let count: Int
    let continuation: Continuation
  }

  private(set) var now = VirtualClock.Instant()
  /// The thread of this clock's virtual time, while that virtual time runs jobs.
  var drivingThread: ThreadIdentity?
  /// Whether a sleep has started on a thread other than ``drivingThread``.
  private(set) var hasSleepsFromOutside = false
  private(set) var sleepers = DeadlineHeap<Sleeper, VirtualClock.Instant>()
  private var steppedDate: Date
  private var steppedAt = VirtualClock.Instant()
  private var waiters: [Waiter] = []
  private var waiterIDs: UInt64 = 0

  init(date: Date) { steppedDate = date }

  // Computed from the date that was set last, so that it equals that date until the time moves.
  var date: Date {
    get { steppedDate.addingTimeInterval(steppedAt.duration(to: now) / .seconds(1)) }
    set { (steppedDate, steppedAt) = (newValue, now) }
  }

  /// Moves the time to `instant`, unless it is already there or later.
  private mutating func move(to instant: VirtualClock.Instant) { now = max(now, instant) }

  /// Removes the first sleeper due by `limit`, and moves the time to its deadline.
  mutating func wakeFirst(through limit: VirtualClock.Instant) -> Continuation? {
    guard let (deadline, sleeper) = sleepers.popFirst(through: limit) else { return nil }
    move(to: deadline)
    return sleeper.continuation
  }

  /// Wakes the first sleeper due by `instant`, or moves the time to `instant` if there is none.
  mutating func advance(to instant: VirtualClock.Instant) -> Continuation? {
    if let sleeper = wakeFirst(through: instant) { return sleeper }
    move(to: instant)
    return nil
  }

  /// Adds a sleeper, and returns the calls of ``VirtualClock/waitForSleepers(count:)`` that end.
  mutating func addSleeper(
    _ sleeper: Sleeper,
    deadline: VirtualClock.Instant
  ) -> (ticket: DeadlineHeap<Sleeper, VirtualClock.Instant>.Ticket?, resumed: [Continuation]) {
    hasSleepsFromOutside = hasSleepsFromOutside || drivingThread != .current
    let ticket = sleepers.insert(sleeper, deadline: deadline)
    guard waiters.contains(where: { $0.count <= sleepers.count }) else { return (ticket, []) }
    let satisfied = waiters.filter { $0.count <= sleepers.count }
    waiters.removeAll { $0.count <= sleepers.count }
    return (ticket, satisfied.map(\.continuation))
  }

  mutating func removeSleeper(
    _ ticket: DeadlineHeap<Sleeper, VirtualClock.Instant>.Ticket
  ) -> Continuation? {
    sleepers.remove(ticket)?.continuation
  }

  mutating func removeFirstSleeper() -> Continuation? {
    sleepers.popFirst(through: .last)?.element.continuation
  }

  mutating func addWaiter(_ waiter: Continuation, count: Int) -> UInt64 {
    waiterIDs += 1
    waiters.append(Waiter(id: waiterIDs, count: count, continuation: waiter))
    return waiterIDs
  }

  mutating func removeWaiter(_ id: UInt64) -> Continuation? {
    guard let index = waiters.firstIndex(where: { $0.id == id }) else { return nil }
    return waiters.remove(at: index).continuation
  }
}

/// A suspended sleep on a virtual clock.
struct Sleeper {
  let continuation: CheckedContinuation<Void, any Error>
  let taskName: String?

  /// Makes the sleep of the current task.
  init(_ continuation: CheckedContinuation<Void, any Error>) {
    self.continuation = continuation
    if #available(macOS 26, iOS 26, tvOS 26, watchOS 26, visionOS 26, *) {
      taskName = Task.name
    } else {
      taskName = nil
    }
  }
}
