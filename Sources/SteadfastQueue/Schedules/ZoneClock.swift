#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// The instants at which the clocks of a time zone show a time.
///
/// It asks the zone for nothing but its offset from GMT at an instant. A time is the number of
/// seconds from 1 January 1970, 00:00, as the clocks of the zone show it; an instant is the number
/// of seconds from that moment in GMT.
struct ZoneClock {
  let zone: TimeZone

  /// How much later than GMT the clocks are, at most, and how much earlier, in seconds.
  ///
  /// Offsets are from -12 to +14 hours; an hour more on either side does no harm.
  private static let (latest, earliest) = (15 * 3_600, 13 * 3_600)

  /// Returns what the clocks show at an instant.
  func time(at instant: Int) -> Int { instant + offset(at: instant) }

  /// Returns the instant at which the clocks show a time.
  ///
  /// A time that they show twice, because they go back, has the first of the two instants. A time
  /// that they skip, because they go forward, has the first instant after that.
  ///
  /// It assumes that the offset changes at most once within 28 hours.
  func instant(of time: Int) -> Int {
    // All instants that can be meant are between these two.
    let (start, end) = (time - Self.latest, time + Self.earliest)
    let (before, after) = (offset(at: start), offset(at: end))
    // Before the change, this instant comes first if both are right.
    let first = time - before
    if before == after || offset(at: first) == before { return first }
    let second = time - after
    if offset(at: second) == after { return second }
    return change(from: before, between: start, and: end)
  }

  /// Returns the first instant in a range at which the offset has changed; `nil` if it has not at
  /// its end.
  func change(after start: Int, through end: Int) -> Int? {
    let before = offset(at: start)
    return offset(at: end) == before ? nil : change(from: before, between: start, and: end)
  }

  /// Returns the first instant at which the offset is not `offset` any more.
  private func change(from offset: Int, between start: Int, and end: Int) -> Int {
    var (low, high) = (start, end)
    while high - low > 1 {
      let middle = low + (high - low) / 2
      if self.offset(at: middle) == offset { low = middle } else { high = middle }
    }
    return high
  }

  private func offset(at instant: Int) -> Int {
    zone.secondsFromGMT(for: Date(timeIntervalSince1970: Double(instant)))
  }
}
