import SteadfastRetry
import Synchronization

extension VirtualClock {
  /// Moves the time forward by `duration` and wakes every sleeper that is due by then.
  ///
  /// It works like ``advance(to:)``. Calls that are made at the same time may count from the same
  /// time, so that one of them has no effect. A negative duration is a programming error: time
  /// never runs backwards, though the clock's date may (``setDate(_:)``).
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
  /// Sleepers are woken in the order of their deadlines, then of their arrival, and each one at its
  /// own deadline: ``now`` never passes a pending deadline. This method does not wait for the woken
  /// tasks. If such a task begins to sleep again after this call has moved the time to the instant,
  /// this call does not wake it. An instant in the past has no effect: another call has moved the
  /// time further. The cost is O(log n) for each sleeper.
  public func advance(to instant: Instant) {
    // A sleep that begins in between is found by the next look, or sees the time that has moved.
    while let sleeper = state.withLock({ $0.advance(to: instant) }) { sleeper.resume() }
  }

  /// The sleeps that have not ended, in the order in which they will end.
  public var pendingSleeps: [PendingSleep] {
    state.withLock { $0.sleepers.sorted }.map { deadline, sleeper in
      PendingSleep(deadline: deadline, taskName: sleeper.taskName)
    }
  }

  /// The earliest deadline of all pending sleeps; nil if nothing sleeps.
  public var nextDeadline: Instant? { state.withLock { $0.sleepers.firstDeadline } }

  /// Suspends until at least `count` sleeps are pending on this clock at once.
  ///
  /// Returns at once if they already are. The sleeps themselves notify it; it never polls. It can't
  /// know of a sleep that the code under test begins later, for other reasons than time.
  /// - Throws: `CancellationError` as soon as the task is cancelled, or if it was before.
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

  /// Moves the time to the first pending deadline, and wakes the one sleeper that is due first.
  ///
  /// Returns false, and does nothing, if no deadline comes by `limit`.
  func wakeFirstSleeper(through limit: Instant) -> Bool {
    guard let sleeper = state.withLock({ $0.wakeFirst(through: limit) }) else { return false }
    sleeper.resume()
    return true
  }

  /// Ends every pending sleep with a `CancellationError`, in order; the time does not move.
  func cancelSleeps() {
    while let sleeper = state.withLock({ $0.removeFirstSleeper() }) {
      sleeper.resume(throwing: CancellationError())
    }
  }
}
