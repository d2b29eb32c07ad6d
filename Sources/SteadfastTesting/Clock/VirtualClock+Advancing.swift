import SteadfastRetry
import Synchronization

extension VirtualClock {
  /// Moves the time forward by `duration` and wakes every sleeper that is due by then.
  ///
  /// As ``advance(to:)``. A negative duration is a programming error: time never runs backwards,
  /// though its date may (``setDate(_:)``).
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
  /// Sleepers are woken in the order of their deadlines, then of their arrival, and each at its
  /// own deadline: ``now`` never passes a pending one. The woken tasks are not waited for; sleeps
  /// that they begin later than this call looks are not woken by it. An instant in the past
  /// changes nothing: some other call moved the time further. Costs O(log n) a sleeper.
  public func advance(to instant: Instant) {
    while wakeFirstSleeper(through: instant) {}
    state.withLock { $0.move(to: instant) }
  }

  /// The sleeps that have not ended, in the order in which they would.
  public var pendingSleeps: [PendingSleep] {
    state.withLock { $0.sleepers.sorted }.map { deadline, sleeper in
      PendingSleep(deadline: deadline, taskName: sleeper.taskName)
    }
  }

  /// The earliest deadline of all pending sleeps; nil if nothing sleeps.
  public var nextDeadline: Instant? { state.withLock { $0.sleepers.firstDeadline } }

  /// Suspends until at least `count` sleeps are pending on this clock at once.
  ///
  /// Returns at once if they are. It is told by the sleeps themselves and never polls; it cannot
  /// know of a sleep that the code under test has yet to begin for other reasons than time.
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

  /// Moves the time to the first pending deadline, if that is not after `limit`, and wakes the one
  /// sleeper that is first due; false if there is none.
  func wakeFirstSleeper(through limit: Instant) -> Bool {
    guard let sleeper = state.withLock({ $0.wakeFirst(through: limit) }) else { return false }
    sleeper.resume()
    return true
  }

  /// Ends every pending sleep with a `CancellationError`, in order; the time stays.
  func cancelSleeps() {
    while let sleeper = state.withLock({ $0.removeFirstSleeper() }) {
      sleeper.resume(throwing: CancellationError())
    }
  }
}
