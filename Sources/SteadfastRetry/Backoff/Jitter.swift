/// How the delays of many callers are spread, so that they do not come back all at once.
///
/// Each kind draws evenly between two bounds. Where the upper one is above the backoff's cap, the
/// delay is drawn between the lower bound and the cap: no delay exceeds the cap, and those at the
/// cap spread as well. "Full", "equal" and "decorrelated" are the terms of Marc Brooker,
/// "Exponential Backoff and Jitter" (AWS Architecture Blog, 2015).
public enum Jitter: Sendable, Hashable {
  /// Between nothing and the interval.
  case full
  /// Between half of the interval and all of it.
  case equal
  /// Between interval × (1 − factor) and interval × (1 + factor).
  ///
  /// A factor below 0, or none at all, counts as 0; one above 1 as 1.
  case proportional(Double)
  /// Between the shape's first interval and three times the previous delay.
  ///
  /// The shape gives only its first interval; the delays grow out of each other, on average by
  /// half each time.
  case decorrelated

  /// The bounds, in nanoseconds, between which the delay is drawn.
  ///
  /// Given are the interval, the shape's first interval and the delay before, none negative.
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
