#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// How often a proof repeats itself: a little in each run of the tests, long when asked to.
public enum Soak {
  /// What `STEADFAST_RUNS` says; else `short`, or what `STEADFAST_MOST_RUNS` says if that is less.
  public static func runs(short: Int) -> Int {
    number("STEADFAST_RUNS") ?? number("STEADFAST_MOST_RUNS").map { min(short, $0) } ?? short
  }

  private static func number(_ variable: String) -> Int? {
    ProcessInfo.processInfo.environment[variable].flatMap { Int($0) }
  }

  /// The seeds from which two rows of cases go on, which lie apart.
  ///
  /// `STEADFAST_SEED` is the first one.
  public static var firstSeeds: [UInt64] {
    let first = seed ?? 1
    return [first, first + 1_000_000]
  }

  /// What `STEADFAST_SEED` says: the one case to repeat.
  public static var seed: UInt64? {
    ProcessInfo.processInfo.environment["STEADFAST_SEED"].flatMap { UInt64($0) }
  }
}
