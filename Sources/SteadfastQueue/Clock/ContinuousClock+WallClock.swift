#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
public import Foundation
#endif

extension ContinuousClock: WallClock {
  /// The system's date.
  public var date: Date { Date() }
}
