/// How the interval before a retry grows with the number of attempts, without jitter or cap.
enum BackoffShape: Sendable {
  case constant(Duration)
  case linear(from: Duration, by: Duration)
  case exponential(from: Duration, multiplier: Double)
  case fibonacci(from: Duration)
  case custom(@Sendable (RetryAttempt) -> Duration)

  /// The interval after the failed `attempt`: never negative, at most the longest `Duration`.
  func interval(after attempt: RetryAttempt) -> Duration {
    let interval: Duration =
      switch self {
      case .constant(let interval): interval
      case .linear(let first, let step):
        first.adding(step.multiplied(by: Int128(attempt.number - 1)))
      case .exponential(let first, let multiplier):
        Self.power(of: multiplier, exponent: attempt.number - 1, times: first)
      case .fibonacci(let first): Self.fibonacci(attempt.number, times: first)
      case .custom(let interval): interval(attempt)
      }
    return max(interval, .zero)
  }

  /// Makes an exponential shape whose intervals are all numbers.
  ///
  /// A multiplier that is not a number counts as 1, a negative one as 0. One that is above 1 by
  /// less than 2⁻⁴⁰ counts as 1, too. With it, the rounding errors of a power (some 2⁻⁴⁶ at most)
  /// could outweigh its growth, and a later interval could be shorter than an earlier one.
  static func exponential(from first: Duration, by multiplier: Double) -> BackoffShape {
    let isOne = multiplier.isNaN || (multiplier > 1 && multiplier < 1 + 0x1p-40)
    return .exponential(from: first, multiplier: isOne ? 1 : max(multiplier, 0))
  }

  private static let longestNanoseconds = Double(
    approximating: Duration.longest.wholeNanoseconds
  )

  /// The product of `first` and `multiplier` to the `exponent`, to the nearest nanosecond.
  ///
  /// It is computed by squaring, in O(log exponent).
  private static func power(
    of multiplier: Double,
    exponent: Int,
    times first: Duration
  ) -> Duration {
    guard first > .zero, exponent > 0, multiplier != 1 else { return first }
    var product = Double(approximating: first.attoseconds)
    var square = multiplier
    var rest = exponent
    while rest > 0 {
      if !rest.isMultiple(of: 2) { product *= square }
      square *= square
      rest /= 2
    }
    let nanoseconds = (product / 1e9).rounded()
    // Everything that is not below the limit saturates, including infinity.
    guard nanoseconds < Self.longestNanoseconds else { return .longest }
    return Duration(wholeNanoseconds: Int128(wholePart: nanoseconds))
  }

  /// The product of `first` and the Fibonacci number at `index`, of 1, 1, 2, 3, 5 and so on.
  private static func fibonacci(_ index: Int, times first: Duration) -> Duration {
    // Zero never grows, so it would not saturate and the loop would run `index` times.
    guard first > .zero else { return .zero }
    var (term, next) = (first, first)
    for _ in 1..<index {
      guard term < Duration(attoseconds: .max) else { break }
      (term, next) = (next, term.adding(next))
    }
    return term
  }
}
