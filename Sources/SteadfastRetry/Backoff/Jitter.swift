/// How the delays of many callers are spread, so that they do not come back all at once.
///
/// Each kind draws evenly between two bounds. If the upper bound is above the backoff's cap, the
/// delay is drawn between the lower bound and the cap: no delay exceeds the cap, and delays at
/// the cap are spread, too. "Full", "equal" and "decorrelated" are the terms of Marc Brooker,
/// "Exponential Backoff and Jitter" (AWS Architecture Blog, 2015).
@nonexhaustive
public enum Jitter: Sendable, Hashable {
  /// Between zero and the interval.
  case full
  /// Between half of the interval and all of it.
  case equal
  /// Between interval × (1 − factor) and interval × (1 + factor).
  ///
  /// A factor that is below 0 or not a number counts as 0, and one above 1 as 1.
  case proportional(Double)
  /// Between the shape's first interval and three times the previous delay.
  ///
  /// Only the shape's first interval is used. Each delay grows from the one before, on average by
  /// half.
  case decorrelated

  /// Returns the bounds, in nanoseconds, between which the delay is drawn.
  ///
  /// The arguments are the interval, the shape's first interval and the delay before. None of them
  /// is negative.
  func bounds(
    of interval: Int128,
    first: @autoclosure () -> Int128,
    previous: Int128
  ) -> (lower: Int128, upper: Int128) {
    switch self {
    case .full: return (0, interval)
    case .equal: return (interval / 2, interval)
    case .proportional(let factor):
      let counted = factor.isNaN ? 0 : min(max(factor, 0), 1)
      let spread = min(Int128(wholePart: Double(approximating: interval) * counted), interval)
      return (interval - spread, interval + spread)
    case .decorrelated:
      let first = first()
      return (first, max(first, previous) * 3)
    }
  }
}
