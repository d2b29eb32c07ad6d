import Synchronization

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// The rate limits of a queue, and until when it was told last that each of them is used up.
final class RateLimiting: Sendable {
  /// How far the clocks of processes on one store may be apart, in microseconds: five minutes.
  ///
  /// If they have one clock, dates that are later by more than a second tell that it was set back.
  private static func tolerance(hasOneClock: Bool) -> Int64 {
    hasOneClock ? 1_000_000 : 300_000_000
  }

  /// What observers know of limits that are used up.
  private struct Told: Sendable {
    /// Until when each of the scopes is, in microseconds since 1970.
    var dates: [Int: Int64] = [:]
    var count = 0
  }

  private let state: Mutex<RateLimits>
  private let told = Mutex(Told())

  /// Returns `nil` if there are no limits.
  init?(_ limits: [RateLimit], hasOneClock: Bool) {
    guard !limits.isEmpty else { return nil }
    state = Mutex(RateLimits(limits, tolerance: Self.tolerance(hasOneClock: hasOneClock)))
  }

  func withLimits<Result>(_ body: (inout sending RateLimits) -> sending Result) -> sending Result {
    state.withLock { body(&$0) }
  }

  /// How often a limit was used up.
  var usedUpCount: Int { told.withLock { $0.count } }

  /// Returns those of the limits about which this was not called before.
  func notTold(_ usedUpLimits: [RateLimits.UsedUp]) -> [RateLimits.UsedUp] {
    guard !usedUpLimits.isEmpty else { return [] }
    return told.withLock { told in
      let new = usedUpLimits.filter { limit in
        told.dates.updateValue(limit.until, forKey: limit.scope) != limit.until
      }
      told.count += new.count
      return new
    }
  }
}

extension Date {
  /// The date in microseconds since 1970, in which rate limits count.
  var microseconds: Int64 { Int64((storable.timeIntervalSince1970 * 1e6).rounded()) }

  /// The date of a number of microseconds since 1970, as it reads after it was stored.
  init(microseconds: Int64) {
    self = Date(timeIntervalSince1970: Double(microseconds) / 1e6).storable
  }
}
