import SteadfastRetry
public import SystemFoundation

/// A clock for sleeping that also has a date.
///
/// A queue stores dates, because they outlive the process and the machine's uptime. It sleeps on
/// instants, because those never jump. A program uses `ContinuousClock`. A test uses a clock that
/// it moves by hand.
public protocol WallClock<Duration>: Clock where Duration == Swift.Duration {
  /// The current date, as the user's calendar and other machines know it.
  ///
  /// Unlike `now`, it may jump in both directions.
  var date: Date { get }

  /// Suspends until the clock's date is this one or later.
  ///
  /// By default, it checks the date at least once a minute. So it notices that the system clock was
  /// set, or that the machine was suspended. It returns at once if the date has passed.
  /// - Throws: `CancellationError` when the task is cancelled.
  nonisolated(nonsending) func sleep(untilDate date: Date) async throws
}

extension WallClock {
  /// Suspends until the clock's date is this one or later, looking at it at least once a minute.
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
  /// The dates that every store can represent, in seconds since 1970.
  ///
  /// They are from `distantPast`, two days before the year 1 of ISO 8601, to the last second of the
  /// year 9999.
  private static var storableSeconds: ClosedRange<Double> { -62_135_769_600...253_402_300_799 }

  /// Whether every store can represent the date.
  var isStorable: Bool { Self.storableSeconds.contains(timeIntervalSince1970) }

  /// The date as a store returns it, which represents it as seconds since 1970.
  ///
  /// A stored date is coarser by a fraction of a microsecond. With this one, the queue has the same
  /// date in memory as after a restart. A date that not every store can represent becomes the
  /// nearest one that every store can.
  var storable: Date {
    let (seconds, bounds) = (timeIntervalSince1970, Self.storableSeconds)
    return Date(
      timeIntervalSince1970: min(max(seconds, bounds.lowerBound), bounds.upperBound)
    )
  }

  /// Returns the date after a delay, as a store returns it.
  ///
  /// A negative delay counts as none.
  func storable(after delay: Duration) -> Date { (self + max(0, delay / .seconds(1))).storable }

  /// Returns the time since an earlier date, to a nanosecond, and at most 285 years.
  ///
  /// It is zero if the other date is later.
  func duration(since earlier: Date) -> Duration {
    // `Duration.seconds(_:)` is exact, and ten times slower.
    .nanoseconds(Int64(max(0, min(timeIntervalSince(earlier), 9e9)) * 1e9))
  }

  /// The nearest later date that is certainly still later when it is stored.
  var nextStorable: Date {
    // In memory, dates count from 2001. Either of the two counts may be the coarser one.
    let step = max(timeIntervalSince1970.ulp, timeIntervalSinceReferenceDate.ulp)
    return Date(timeIntervalSince1970: timeIntervalSince1970 + 2 * step)
  }
}
