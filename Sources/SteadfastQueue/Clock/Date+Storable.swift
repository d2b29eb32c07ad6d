#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

extension Date {
  /// The date as it reads after it was stored as seconds since 1970.
  ///
  /// A stored date is coarser by a fraction of a microsecond. With this one, the queue has in
  /// memory what it finds after a restart.
  var storable: Date { Date(timeIntervalSince1970: timeIntervalSince1970) }

  /// Returns the time since an earlier date, to a nanosecond, and at most 285 years.
  ///
  /// It is zero since a later date.
  func duration(since earlier: Date) -> Duration {
    // `Duration.seconds(_:)` is exact, and takes ten times as long.
    .nanoseconds(Int64(max(0, min(timeIntervalSince(earlier), 9e9)) * 1e9))
  }

  /// The nearest later date that is certain to be later when it is stored, too.
  var nextStorable: Date {
    // In memory, dates count from 2001. Either of the two counts may be the coarser one.
    let step = max(timeIntervalSince1970.ulp, timeIntervalSinceReferenceDate.ulp)
    return Date(timeIntervalSince1970: timeIntervalSince1970 + 2 * step)
  }
}
