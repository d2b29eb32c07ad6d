/// How long to wait between attempts: a series of intervals, with optional jitter and an optional
/// cap.
///
/// ```swift
/// Backoff.exponential(from: .milliseconds(100), multiplier: 2)
///   .jittered(.full).capped(at: .seconds(10))
/// ```
/// Delays are whole nanoseconds and never negative. The arithmetic saturates: no attempt number,
/// duration or factor causes a trap. Without jitter, the delays of a backoff that grows never
/// become shorter.
public struct Backoff: Sendable {
  let shape: BackoffShape
  private(set) var jitter: Jitter?
  private(set) var cap: Duration?

  private init(_ shape: BackoffShape) { self.shape = shape }

  /// A backoff that starts at 500 ms and grows by half each time, ± 50 %, up to 60 s.
  ///
  /// These are the defaults of Google's HTTP client for Java, and of its successors.
  public static let `default` = Backoff.exponential(from: .milliseconds(500), multiplier: 1.5)
    .jittered(.proportional(0.5)).capped(at: .seconds(60))

  /// A backoff without delays.
  public static let immediate = Backoff.constant(.zero)

  /// A backoff with the same interval each time.
  public static func constant(_ interval: Duration) -> Backoff { Backoff(.constant(interval)) }

  /// A backoff that starts with `first`, and adds `step` each time.
  ///
  /// A negative step shortens the interval, down to zero.
  public static func linear(from first: Duration, by step: Duration) -> Backoff {
    Backoff(.linear(from: first, by: step))
  }

  /// A backoff that starts with `first`; each later interval is `multiplier` times the previous
  /// one.
  ///
  /// Interval n is first × multiplierⁿ⁻¹, rounded to the nearest nanosecond. A multiplier that is
  /// not a number, or is above 1 by less than 10⁻¹², counts as 1; a negative multiplier counts as
  /// 0.
  public static func exponential(from first: Duration, multiplier: Double = 2) -> Backoff {
    Backoff(.exponential(from: first, by: multiplier))
  }

  /// A backoff that starts with `first` twice; each later interval is the sum of the two previous
  /// intervals.
  public static func fibonacci(from first: Duration) -> Backoff {
    Backoff(.fibonacci(from: first))
  }

  /// A backoff with the interval that the closure returns for the failed attempt; a negative
  /// interval counts as zero.
  public static func custom(
    _ interval: @escaping @Sendable (RetryAttempt) -> Duration
  ) -> Backoff {
    Backoff(.custom(interval))
  }

  /// Returns this backoff with delays randomized by `jitter`, which replaces any earlier jitter.
  public func jittered(_ jitter: Jitter) -> Backoff {
    var copy = self
    copy.jitter = jitter
    return copy
  }

  /// Returns this backoff with no delay longer than `cap`, which replaces any earlier cap.
  ///
  /// The cap limits the interval before jitter as well as the delay after it, in whichever order
  /// the two methods are called. A negative cap counts as zero.
  public func capped(at cap: Duration) -> Backoff {
    var copy = self
    copy.cap = cap
    return copy
  }
}

/// A series of intervals between attempts, before jitter and cap are applied.
enum BackoffShape: Sendable {
  case constant(Duration)
  case linear(from: Duration, by: Duration)
  case exponential(from: Duration, multiplier: Double)
  case fibonacci(from: Duration)
  case custom(@Sendable (RetryAttempt) -> Duration)

  /// Returns the interval after the failed `attempt`, which is never negative.
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

  /// Makes an exponential shape that never shrinks because of an invalid multiplier or of rounding
  /// errors.
  ///
  /// A multiplier that is not a number counts as 1, and a negative multiplier as 0. A multiplier
  /// that is above 1 by less than 2⁻⁴⁰ counts as 1, too: the rounding errors of its powers (some
  /// 2⁻⁴⁶ at most) could outweigh their growth, and a later interval could be shorter than an
  /// earlier one.
  static func exponential(from first: Duration, by multiplier: Double) -> BackoffShape {
    let isOne = multiplier.isNaN || (multiplier > 1 && multiplier < 1 + 0x1p-40)
    return .exponential(from: first, multiplier: isOne ? 1 : max(multiplier, 0))
  }

  private static let longestNanoseconds = Double(
    approximating: Duration.longest.wholeNanoseconds
  )

  /// Returns `first` × `multiplier` to the power of `exponent`, rounded to the nearest nanosecond.
  ///
  /// The power is computed by squaring, in O(log exponent).
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
    // A product that is too large, such as infinity, counts as the longest duration.
    guard nanoseconds < Self.longestNanoseconds else { return .longest }
    return Duration(wholeNanoseconds: Int128(wholePart: nanoseconds))
  }

  /// Returns the product of `first` and the Fibonacci number at `index`, where the numbers 1 and 2
  /// are both 1.
  private static func fibonacci(_ index: Int, times first: Duration) -> Duration {
    // Without this check, the loop would run `index` times, because multiples of zero never
    // saturate.
    guard first > .zero else { return .zero }
    var (term, next) = (first, first)
    for _ in 1..<index {
      guard term < Duration(attoseconds: .max) else { break }
      (term, next) = (next, term.adding(next))
    }
    return term
  }
}

extension Backoff {
  /// Returns the delay between the failed `attempt` and the next one.
  ///
  /// The attempt's number, counted from 1, determines the interval. The delay before the attempt
  /// matters only for ``Jitter/decorrelated``. If jitter has a range to draw from, one number is
  /// drawn from the generator.
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

  /// Returns the first `count` delays of a series in which all attempts fail, for a table or a
  /// plot.
  ///
  /// With jitter, each call returns other delays; with a seed as `randomness`, the same ones. For a
  /// custom backoff, the elapsed time of an attempt is the sum of the previous delays.
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

extension Backoff: CustomStringConvertible {
  /// A description such as `exponential from 0.5 seconds × 1.5, ± 50.0 %, at most 60.0 seconds`.
  public var description: String {
    let parts = [shape.description, jitter?.description, cap.map { "at most \($0)" }]
    return parts.compactMap(\.self).joined(separator: ", ")
  }
}

extension BackoffShape: CustomStringConvertible {
  var description: String {
    switch self {
    case .constant(.zero): "immediate"
    case .constant(let interval): "constant \(interval)"
    case .linear(let first, let step): "linear from \(first) by \(step)"
    case .exponential(let first, let multiplier): "exponential from \(first) × \(multiplier)"
    case .fibonacci(let first): "fibonacci from \(first)"
    case .custom: "custom"
    }
  }
}

extension Jitter: CustomStringConvertible {
  /// A description such as `full jitter` or `± 50.0 %`.
  public var description: String {
    switch self {
    case .full: "full jitter"
    case .equal: "equal jitter"
    case .proportional(let factor): "± \(factor * 100) %"
    case .decorrelated: "decorrelated jitter"
    }
  }
}

extension Duration {
  /// The longest duration of whole nanoseconds, about 5 × 10¹² years.
  static var longest: Duration {
    Duration(wholeNanoseconds: Duration(attoseconds: .max).wholeNanoseconds)
  }

  /// This duration in nanoseconds, rounded towards zero.
  var wholeNanoseconds: Int128 { attoseconds / 1_000_000_000 }

  /// Makes a duration of whole nanoseconds, or the nearest one that a `Duration` can represent.
  init(wholeNanoseconds nanoseconds: Int128) {
    let (product, overflow) = nanoseconds.multipliedReportingOverflow(by: 1_000_000_000)
    let nearest: Int128 = nanoseconds < 0 ? .min : .max
    self.init(attoseconds: overflow ? nearest : product)
  }

  /// Returns the product, or the nearest duration that a `Duration` can represent.
  func multiplied(by factor: Int128) -> Duration {
    let (product, overflow) = attoseconds.multipliedReportingOverflow(by: factor)
    guard overflow else { return Duration(attoseconds: product) }
    return Duration(attoseconds: (self < .zero) == (factor < 0) ? .max : .min)
  }

  /// Returns the sum, or the nearest duration that a `Duration` can represent.
  func adding(_ other: Duration) -> Duration {
    let (sum, overflow) = attoseconds.addingReportingOverflow(other.attoseconds)
    guard overflow else { return Duration(attoseconds: sum) }
    return Duration(attoseconds: other < .zero ? .min : .max)
  }
}

// The standard library's conversions between `Int128` and `Double` are generic and not specialised.
// With them, a delay with jitter takes 1.5 µs (Swift 6.3); with the conversions here, it takes 0.2
// µs.
extension Int128 {
  /// Makes the whole part of a number, which must not be negative and must be below 2¹²⁷.
  init(wholePart value: Double) {
    if value < 0x1p63 {
      self = Int128(Int64(value))
    } else {
      let significand = value.significandBitPattern | 1 << Double.significandBitCount
      self = Int128(significand) << (Int(value.exponent) - Double.significandBitCount)
    }
  }
}

extension Double {
  /// Makes the number nearest to `value`, or the number just above or below that.
  init(approximating value: Int128) {
    self = Double(Int64(value >> 64)) * 0x1p64 + Double(UInt64(truncatingIfNeeded: value))
  }
}
