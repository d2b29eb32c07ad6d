#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
public import Foundation
#endif

extension TaskRecord {
  /// Makes the task as it was when it was enqueued, but for its available date; for stores, on
  /// ``TaskChange/restart(_:availableDate:)``.
  public mutating func makeNew(availableDate: Date) {
    self.availableDate = availableDate
    retryCount = 0
    interruptionCount = 0
    lastError = nil
    failedDate = nil
    finishedDate = nil
  }

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
