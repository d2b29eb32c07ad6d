#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// Notices that the system's clock was set back: a value that is told each date that is seen.
struct DateWatch: Sendable {
  /// By how many seconds dates may differ that were read at the same time by several workers.
  private static let tolerance = 1.0

  private var latest: Date?

  /// Whether no date was seen.
  var isUnused: Bool { latest == nil }

  /// Whether dates that were kept may lie in the future, because the date went back since one was
  /// last seen, or none was: then this is the first of a process, and the clock of the one before is
  /// unknown.
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
