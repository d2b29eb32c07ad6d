/// How far a virtual time may move by itself before the test fails.
struct VirtualTimeLimit {
  /// How far the time may move.
  let duration: Duration
  /// How often the time may still move further, so that a single sleep may have any length.
  private var stepsLeft: Int
  private var excluded = Duration.zero

  /// Makes a limit.
  ///
  /// A given duration is exact. The default is ten years, and 1,000 steps beyond.
  init(_ duration: Duration?) {
    // A few days longer than any ten years.
    self.duration = duration ?? .seconds(86_400 * 3_660)
    stepsLeft = duration == nil ? 1_000 : 0
  }

  /// Notes that the time has moved because of an advance, and not by itself.
  mutating func exclude(_ advance: Duration) { excluded += advance }

  /// Returns whether the time may move to this instant, and counts a step beyond the duration.
  mutating func allows(_ instant: VirtualClock.Instant) -> Bool {
    guard instant.offset - excluded > duration else { return true }
    stepsLeft -= 1
    return stepsLeft >= 0
  }
}
