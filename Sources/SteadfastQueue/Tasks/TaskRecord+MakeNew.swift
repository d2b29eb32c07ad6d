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
