public import SteadfastQueue

#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
public import Foundation
#endif

/// The clock of another machine: its dates differ from those of another clock.
public struct SkewedClock<Base: WallClock>: WallClock {
  private let base: Base
  private let seconds: Double

  /// Makes a clock.
  ///
  /// - Parameters:
  ///   - base: the other clock.
  ///   - seconds: by how many seconds its dates are ahead.
  public init(base: Base, seconds: Double) {
    self.base = base
    self.seconds = seconds
  }

  /// The other clock's date, and the seconds.
  public var date: Date { base.date + seconds }
  /// The other clock's instant.
  public var now: Base.Instant { base.now }
  /// That of the other clock.
  public var minimumResolution: Duration { base.minimumResolution }

  /// Waits as the other clock does.
  public func sleep(until deadline: Base.Instant, tolerance: Duration?) async throws {
    try await base.sleep(until: deadline, tolerance: tolerance)
  }
}
