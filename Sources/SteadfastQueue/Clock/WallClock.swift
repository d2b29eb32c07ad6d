import SteadfastRetry
public import SystemFoundation

/// A clock for sleeping that also has a date.
///
/// A queue stores dates, because dates have a meaning after a restart of the process or the
/// machine. A queue sleeps until instants, because instants never jump. A program uses
/// `ContinuousClock`. A test uses a clock that the test moves by hand.
public protocol WallClock<Duration>: Clock where Duration == Swift.Duration {
  /// The current date, as the user's calendar and other machines know it.
  ///
  /// Unlike `now`, the date may jump forwards and backwards when the system's clock is set.
  var date: Date { get }

  /// Suspends until the clock shows this date or a later one.
  ///
  /// By default, the function checks the clock's date at least once a minute. So it notices that
  /// the system clock was set, or that the machine was suspended. It returns at once if the date
  /// has passed.
  ///
  /// - Throws: `CancellationError` when the task is cancelled.
  nonisolated(nonsending) func sleep(untilDate date: Date) async throws
}

extension WallClock {
  /// Suspends until the clock shows this date or a later one, and checks the clock's date at least
  /// once a minute.
  public func sleep(untilDate end: Date) async throws {
    try Task.checkCancellation()
    while true {
      let seconds = end.timeIntervalSince(date)
      guard seconds > 0 else { return }
      // Waits at least a nanosecond: a shorter wait may be lost when it is added to an instant.
      try await wait(for: .seconds(min(max(seconds, 1e-9), 60)))
    }
  }
}

extension ContinuousClock: WallClock {
  /// The system's date.
  public var date: Date { Date() }
}

extension Date {
  /// The range of dates that every store can represent, in seconds since 1970.
  ///
  /// The first one is `distantPast`, two days before the year 1 of ISO 8601. The last one is the
  /// last second of the year 9999.
  private static var storableSeconds: ClosedRange<Double> { -62_135_769_600...253_402_300_799 }

  /// Whether every store can represent the date.
  var isStorable: Bool { Self.storableSeconds.contains(timeIntervalSince1970) }

  /// This date, rounded as a store rounds it.
  ///
  /// A store represents a date as seconds since 1970, which changes the date by a fraction of a
  /// microsecond. If a queue uses rounded dates, it has the same dates in memory as after a
  /// restart. A date outside the range that every store can represent is moved to the nearest end
  /// of that range.
  var storable: Date {
    let (seconds, bounds) = (timeIntervalSince1970, Self.storableSeconds)
    return Date(
      timeIntervalSince1970: min(max(seconds, bounds.lowerBound), bounds.upperBound)
    )
  }

  /// Returns the date at which a delay from this date ends, rounded as a store rounds it.
  ///
  /// A negative delay counts as zero.
  func storableDate(after delay: Duration) -> Date { (self + max(0, delay / .seconds(1))).storable }

  /// Returns the time since an earlier date, to a nanosecond, limited to 285 years.
  ///
  /// The result is zero if the other date is later.
  func duration(since earlier: Date) -> Duration {
    // `Duration.seconds(_:)` is exact, and ten times slower.
    .nanoseconds(Int64(max(0, min(timeIntervalSince(earlier), 9e9)) * 1e9))
  }

  /// The nearest date that is still later than this date when both have been stored.
  var nextStorable: Date {
    // In memory, a date is a number of seconds since 2001; a store counts from 1970. Either number
    // may be the less precise one.
    let step = max(timeIntervalSince1970.ulp, timeIntervalSinceReferenceDate.ulp)
    return Date(timeIntervalSince1970: timeIntervalSince1970 + 2 * step)
  }
}
