/// How far a virtual time moves by itself before that counts as a mistake.
struct VirtualTimeLimit {
  /// How far it may move.
  let duration: Duration
  /// How often it may move further: a single sleep may be as long as a test wants.
  private var stepsLeft: Int

  /// The limit that was chosen, which is kept to the letter; without one, ten years and some steps.
  init(_ duration: Duration?) {
    // Some days more than ten years of any length.
    self.duration = duration ?? .seconds(86_400 * 3_660)
    stepsLeft = duration == nil ? 1_000 : 0
  }

  /// Whether the time may move on to this instant.
  mutating func allows(_ instant: VirtualClock.Instant) -> Bool {
    guard instant.offset > duration else { return true }
    stepsLeft -= 1
    return stepsLeft >= 0
  }
}
