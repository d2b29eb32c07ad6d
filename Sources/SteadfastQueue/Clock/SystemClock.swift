#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
public import Foundation
#endif

/// The machine's own clock: it sleeps on `ContinuousClock`, and reads the system's date.
public typealias SystemClock = ContinuousClock

extension ContinuousClock: WallClock {
  /// The system's date.
  public var date: Date { Date() }
}
