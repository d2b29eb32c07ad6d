extension Backoff {
  /// Returns the delay between the failed `attempt` and the next one.
  ///
  /// The attempt's number, counted from 1, determines the interval. Only ``Jitter/decorrelated``
  /// uses the delay before the attempt. The only side effect is on the generator: one number is
  /// drawn from it if the delay has a range to be spread over.
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
    // A fraction of 53 bits, as many as a Double holds, is enough for a span of any size.
    let fraction = Double(generator.next() >> 11) * 0x1p-53
    let drawn = Int128(wholePart: (Double(approximating: span) + 1) * fraction)
    return Duration(wholeNanoseconds: lower + min(drawn, span))
  }

  /// Returns the first `count` delays of a call that keeps failing, for a table or a plot.
  ///
  /// With jitter, each call returns another series; seed `randomness` to get the same one again.
  /// A custom shape gets the sum of the delays before as its elapsed time.
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
