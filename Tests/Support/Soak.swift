#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// The number of repetitions of randomised tests: few by default, many on request.
public enum Soak {
  /// Returns `STEADFAST_RUNS` if it is set, or else `short`, but at most `STEADFAST_MOST_RUNS`.
  public static func runs(short: Int) -> Int {
    number("STEADFAST_RUNS") ?? number("STEADFAST_MOST_RUNS").map { min(short, $0) } ?? short
  }

  private static func number(_ variable: String) -> Int? {
    ProcessInfo.processInfo.environment[variable].flatMap { Int($0) }
  }

  /// The first seeds of two series of cases, far enough apart not to overlap.
  ///
  /// `STEADFAST_SEED` sets the first seed of the first series.
  public static var firstSeeds: [UInt64] {
    let first = seed ?? 1
    return [first, first + 1_000_000]
  }

  /// The value of `STEADFAST_SEED`, which is the seed of the only case to repeat.
  public static var seed: UInt64? {
    ProcessInfo.processInfo.environment["STEADFAST_SEED"].flatMap { UInt64($0) }
  }
}
