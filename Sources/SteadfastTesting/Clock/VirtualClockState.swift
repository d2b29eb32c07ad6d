import SteadfastQueue
import SteadfastRetry

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// What a ``VirtualClock`` guards with its lock: the time, the date, the sleepers and the waiters.
///
/// Each event is one method. If it returns continuations, the caller resumes each of them, once,
/// after it releases the lock.
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
  /// Whether a sleep began on any other thread.
  private(set) var hasSleepsFromOutside = false
  private(set) var sleepers = DeadlineHeap<Sleeper, VirtualClock.Instant>()
  private var steppedDate: Date
  private var steppedAt = VirtualClock.Instant()
  private var waiters: [Waiter] = []
  private var waiterIDs: UInt64 = 0

  init(date: Date) { steppedDate = date }

  // The date is counted from where it was set last, so that a date just set reads back exactly.
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

  /// Does so, or moves the time to `instant` if no sleeper is due by then.
  mutating func advance(to instant: VirtualClock.Instant) -> Continuation? {
    if let sleeper = wakeFirst(through: instant) { return sleeper }
    move(to: instant)
    return nil
  }

  /// Adds a sleeper; also returns the waiters for which there are now enough sleepers.
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
