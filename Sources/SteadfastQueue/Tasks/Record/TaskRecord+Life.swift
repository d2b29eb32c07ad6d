#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
public import Foundation
#endif

extension TaskRecord {
  /// Makes the task wait as it did when it was enqueued, but from another date on.
  ///
  /// Stores call this on ``TaskChange/restart(_:availableDate:forgets:)``. This clears the task's
  /// retries, interruptions, failures, end date and ``isPostponed``, and the task because of which
  /// it was cancelled. It also drops an expiry date that has come by `availableDate`: otherwise the
  /// task would be abandoned again at once. The store itself changes the task's lease, if it has
  /// one, and moves the task behind its equals in line.
  public mutating func restart(availableDate: Date) {
    state = .waiting
    self.availableDate = availableDate
    finishedDate = nil
    forgetFailures()
    if presentDependencies?.cause != nil { dependencies.cause = nil }
    if hasExpired(by: availableDate) { dropExpiry() }
  }

  /// Suspends the task until a date, which its attempt has chosen.
  ///
  /// Stores call this on ``TaskChange/suspend(_:until:awaiting:)``, unless what the task awaits has
  /// come: then they call ``wake()`` as well. It clears the interruptions and ``isPostponed``.
  /// Retries and failures stay.
  public mutating func suspend(until date: Date) {
    state = .suspended
    availableDate = date
    if interruptionCount > 0 { interruptionCount = 0 }
    if isPostponed { isPostponed = false }
  }

  /// Whether its date ever comes; it does not for a task that is suspended without one.
  var hasDueDate: Bool { availableDate < .distantFuture }

  /// Makes a suspended task wait, available at once.
  ///
  /// Stores call this on ``TaskChange/complete(_:named:value:)``, and before they pause or replace
  /// a suspended task. The date becomes the one on which the task was enqueued, or has failed if
  /// that is earlier. If the clock was ahead then, it is a date to come, and a rebase moves it
  /// (``rebase(to:)``).
  public mutating func wake() {
    state = .waiting
    availableDate = min(createdDate, failedDate ?? createdDate)
    if isPostponed { isPostponed = false }
  }

  /// Moves the dates that the queue took from a clock that has gone back since.
  ///
  /// Stores call this on `TaskChange.rebase(_:)`. A failure that is later than `now` is taken to
  /// have happened now, and the retry comes after the delay that it had. A task that has not
  /// failed, and was to be performed at once, is available now. A date that was chosen for a task
  /// stays, and so does that of a suspended task.
  /// - Returns: Whether any date was moved.
  public mutating func rebase(to now: Date) -> Bool {
    if state == .suspended { return false }
    if let failedDate {
      guard failedDate > now else { return false }
      // This only moves a date back, so it needs no clamping, and reads the same in old files.
      let seconds = (now + availableDate.timeIntervalSince(failedDate)).timeIntervalSince1970
      let moved = Date(timeIntervalSince1970: seconds)
      // If no finite date is that far ahead, it can't be stored either, and the date stays.
      if moved.timeIntervalSince1970.isFinite { availableDate = moved }
      self.failedDate = now
      return true
    }
    guard availableDate > now, availableDate <= createdDate else { return false }
    availableDate = now
    return true
  }

  /// Returns whether new tasks with the unique key count as this one on a date.
  func standsForOthers(on date: Date) -> Bool { uniqueUntil.map { $0 > date } ?? false }

  /// Whether it expired before a later task was added, which has taken its unique key.
  ///
  /// No attempt at it begins, whatever a clock says by then.
  var isDisplaced: Bool {
    keyRole == nil && uniqueKey != nil && expiryDate != nil && !state.isFinished
  }

  /// Whether later tasks with its order key wait for it, although it has ended.
  public var holdsUpOthers: Bool { mayHoldUpOthers && (state == .abandoned || state == .cancelled) }

  /// Whether later tasks with its order key wait if it ends without success.
  var mayHoldUpOthers: Bool { holdsOrder && orderKey != nil }

  /// How the task ended; `nil` if it has not.
  var outcome: TaskOutcome? {
    switch state {
    case .waiting, .running, .suspended, .parked, .paused: nil
    case .succeeded: .succeeded
    case .abandoned: .abandoned(reason: lastError ?? "")
    case .cancelled: .cancelled
    }
  }
}

// A count may come from a file that anyone wrote. At the end of its range it stays as it is, so
// that it does not end the process.
extension TaskRecord {
  /// The number of failed attempts, once the current one has failed.
  var nextRetryCount: Int { Self.next(retryCount) }

  /// Counts that a process ended while it performed the task.
  mutating func countInterruption() { interruptionCount = Self.next(interruptionCount) }

  private static func next(_ count: Int) -> Int { count < .max ? count + 1 : count }
}
