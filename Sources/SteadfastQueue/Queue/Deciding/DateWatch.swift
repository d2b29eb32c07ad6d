#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// Detects that the system's clock was set back, by the dates that it is given.
struct DateWatch: Sendable {
  /// How many seconds apart dates may be that several workers read at the same time.
  private static let tolerance = 1.0

  private var latest: Date?

  /// Whether it was given no date yet.
  var isUnused: Bool { latest == nil }

  /// Returns whether dates in the store may lie in the future.
  ///
  /// They may if the date went back since the last call. They may also on the first call: it has
  /// the first date of this process, and the clock of the process before it is unknown.
  mutating func wentBack(to now: Date) -> Bool {
    guard let latest else {
      latest = now
      return true
    }
    guard now < latest - Self.tolerance else {
      self.latest = max(latest, now)
      return false
    }
    self.latest = now
    return true
  }
}
