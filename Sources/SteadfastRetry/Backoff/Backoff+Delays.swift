extension Backoff {
  /// The delay to wait after the failed `attempt`, before the next one.
  ///
  /// Its number, counted from 1, sets the interval; the delay that was waited before it matters to
  /// ``Jitter/decorrelated`` alone. Pure but for the generator, from which one number is drawn if
  /// there is anything to spread.
  public func delay(
    after attempt: RetryAttempt,
    using generator: inout some RandomNumberGenerator
  ) -> Duration {
    let longest = max(min(cap ?? .longest, .longest), .zero).wholeNanoseconds
    let interval = min(shape.interval(after: attempt).wholeNanoseconds, longest)
    guard let jitter else { return Duration(wholeNanoseconds: interval) }
    let (lower, upper) = jitter.bounds(
      of: interval,
      first: min(shape.interval(after: RetryAttempt(number: 1)).wholeNanoseconds, longest),
      previous: attempt.delay.wholeNanoseconds
    )
    let span = min(upper, longest) - lower
    guard span > 0 else { return Duration(wholeNanoseconds: lower) }
    // 53 bits of fraction, as many as a Double holds, serve a span of any size.
    let fraction = Double(generator.next() >> 11) * 0x1p-53
    let drawn = Int128(wholePart: (Double(approximating: span) + 1) * fraction)
    return Duration(wholeNanoseconds: lower + min(drawn, span))
  }

  /// The first `count` delays, as a failing call would wait them, for a table or a plot.
  ///
  /// With jitter it is one series of many; `randomness` may be seeded to get the same one again.
  /// A custom shape is told an elapsed time that is the sum of the delays before.
  public func delays(first count: Int, randomness: Randomness = .system) -> [Duration] {
    var generator = randomness.makeGenerator()
    var attempt = RetryAttempt(number: 1)
    return (0..<max(count, 0)).map { _ in
      let delay = delay(after: attempt, using: &generator)
      attempt = attempt.next(delay: delay, elapsed: attempt.elapsed.adding(delay))
      return delay
    }
  }
}
