#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
public import Foundation
#endif

extension TaskRecord {
  /// Makes the task wait as it did when it was enqueued, but for its available date; for stores, on
  /// ``TaskChange/restart(_:availableDate:)``.
  ///
  /// It has no retries, interruptions, failures and date of its end any more, and is not put off. Its lease, if it has
  /// one, and its place behind its equals are the store's to change.
  /// A date of expiry that has come by then is dropped: the task would be given up again at once.
  public mutating func makeNew(availableDate: Date) {
    state = .waiting
    self.availableDate = availableDate
    finishedDate = nil
    forgetTroubles()
    if hasExpired(by: availableDate) { dropExpiry() }
  }
}

extension TaskRecord {
  /// Moves what the queue dated by a clock that has gone back since; for stores, on
  /// TaskChange/rebase(_:).
  ///
  /// A failure that is later than `now` is taken to have happened now, and the retry comes after the
  /// delay that it had. A task that was to be performed at once, and has not failed, is available
  /// now. A date that was chosen for a task is kept.
  /// - Returns: whether anything was moved.
  public mutating func rebase(to now: Date) -> Bool {
    if let failedDate {
      guard failedDate > now else { return false }
      let moved = (now + availableDate.timeIntervalSince(failedDate)).storable
      // A delay that no date can follow can't be stored either.
      if moved.timeIntervalSince1970.isFinite { availableDate = moved }
      self.failedDate = now
      return true
    }
    guard availableDate > now, availableDate <= createdDate else { return false }
    availableDate = now
    return true
  }
}

extension TaskRecord {
  /// How the task ended; `nil` if it has not.
  var outcome: TaskOutcome? {
    switch state {
    case .waiting, .running, .parked, .paused: nil
    case .succeeded: .succeeded
    case .abandoned: .abandoned(reason: lastError ?? "")
    case .cancelled: .cancelled
    }
  }
}

// A count may have been read from a file that anybody wrote: it stays where it is at the end of its
// range, instead of ending the process.
extension TaskRecord {
  /// How many attempts have failed when the present one has.
  var nextRetryCount: Int { Self.next(retryCount) }

  /// Notes that a process ended while it performed the task.
  mutating func countInterruption() { interruptionCount = Self.next(interruptionCount) }

  private static func next(_ count: Int) -> Int { count < .max ? count + 1 : count }
}
