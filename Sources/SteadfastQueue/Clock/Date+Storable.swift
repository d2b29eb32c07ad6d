#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

extension Date {
  /// The date as it reads after it was stored as seconds since 1970, which is coarser by a fraction
  /// of a microsecond.
  ///
  /// What the queue keeps in memory is thereby what it finds after a restart.
  var storable: Date { Date(timeIntervalSince1970: timeIntervalSince1970) }

  /// A date that is later when stored, by as little as is sure to be.
  var nextStorable: Date {
    // Dates count from 2001 in memory: each of the two counts may be the coarser one.
    let step = max(timeIntervalSince1970.ulp, timeIntervalSinceReferenceDate.ulp)
    return Date(timeIntervalSince1970: timeIntervalSince1970 + 2 * step)
  }
}
