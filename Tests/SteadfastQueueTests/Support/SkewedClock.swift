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
