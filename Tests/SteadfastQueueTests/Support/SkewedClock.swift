import Foundation
import SteadfastQueue
import SteadfastTesting

/// The clock of another machine: its dates differ from those of a virtual clock.
struct SkewedClock: WallClock {
  let base: VirtualClock
  /// By how many seconds its dates are ahead.
  let seconds: Double

  var date: Date { base.date + seconds }
  var now: VirtualClock.Instant { base.now }
  var minimumResolution: Duration { base.minimumResolution }

  func sleep(until deadline: VirtualClock.Instant, tolerance: Duration?) async throws {
    try await base.sleep(until: deadline, tolerance: tolerance)
  }
}

/// A date, as in `2027-03-28T01:00:00Z`.
func date(_ text: String) throws -> Date { try Date(text, strategy: .iso8601) }

/// A time zone that the tests need, as `Europe/Berlin`.
func zone(_ identifier: String) throws -> TimeZone {
  guard let zone = TimeZone(identifier: identifier) else {
    throw Refusal("this system has no time zone '\(identifier)'")
  }
  return zone
}
