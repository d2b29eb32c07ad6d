#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

extension Date {
  /// The dates that every store can hold, in seconds since 1970.
  ///
  /// They are from `distantPast`, two days before the year 1 of ISO 8601, to the last second of the
  /// year 9999.
  private static var storableSeconds: ClosedRange<Double> { -62_135_769_600...253_402_300_799 }

  /// Whether every store can hold the date.
  var isStorable: Bool { Self.storableSeconds.contains(timeIntervalSince1970) }

  /// The date as it reads after it was stored as seconds since 1970.
  ///
  /// A stored date is coarser by a fraction of a microsecond. With this one, the queue has in
  /// memory what it finds after a restart. A date that not every store can hold becomes the nearest
  /// one that every store can.
  var storable: Date {
    let (seconds, bounds) = (timeIntervalSince1970, Self.storableSeconds)
    return Date(
      timeIntervalSince1970: min(max(seconds, bounds.lowerBound), bounds.upperBound)
    )
  }

  /// Returns the date after a delay, as it reads after it was stored.
  ///
  /// A negative delay counts as none.
  func storable(after delay: Duration) -> Date { (self + max(0, delay / .seconds(1))).storable }

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
