#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
public import Foundation
#endif

extension TaskRecord {
  /// Makes the task as it was when it was enqueued, but for its available date; for stores, on
  /// ``TaskChange/restart(_:availableDate:)``.
  ///
  /// A date of expiry that has come by then is dropped: the task would be given up again at once.
  public mutating func makeNew(availableDate: Date) {
    self.availableDate = availableDate
    retryCount = 0
    interruptionCount = 0
    lastError = nil
    failedDate = nil
    finishedDate = nil
    if hasExpired(by: availableDate) { dropExpiry() }
  }
}
