#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// How often a proof repeats itself: a little in each run of the tests, long when asked to.
public enum Soak {
  /// What `STEADFAST_RUNS` says, else `short`.
  public static func runs(short: Int) -> Int {
    ProcessInfo.processInfo.environment["STEADFAST_RUNS"].flatMap { Int($0) } ?? short
  }

  /// What `STEADFAST_SEED` says: the one case to repeat.
  public static var seed: UInt64? {
    ProcessInfo.processInfo.environment["STEADFAST_SEED"].flatMap { UInt64($0) }
  }
}
