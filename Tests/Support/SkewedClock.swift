public import SteadfastQueue

#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
public import Foundation
#endif

/// A clock whose dates differ from the dates of a base clock, like a clock on another machine.
public struct SkewedClock<Base: WallClock>: WallClock {
  private let base: Base
  private let seconds: Double

  /// Creates a clock.
  ///
  /// - Parameters:
  ///   - base: The base clock.
  ///   - seconds: The number of seconds by which the dates are ahead.
  public init(base: Base, seconds: Double) {
    self.base = base
    self.seconds = seconds
  }

  /// The date of the base clock plus the seconds.
  public var date: Date { base.date + seconds }
  /// The base clock's instant.
  public var now: Base.Instant { base.now }
  /// The base clock's resolution.
  public var minimumResolution: Duration { base.minimumResolution }

  /// Sleeps on the base clock.
  public func sleep(until deadline: Base.Instant, tolerance: Duration?) async throws {
    try await base.sleep(until: deadline, tolerance: tolerance)
  }
}
