/// How long to wait between attempts: a shape, with optional jitter and an optional cap.
///
/// ```swift
/// Backoff.exponential(from: .milliseconds(100), multiplier: 2)
///   .jittered(.full).capped(at: .seconds(10))
/// ```
/// Delays are whole nanoseconds and never negative. The arithmetic saturates: no attempt number,
/// duration or factor traps. Without jitter, the delays of a growing shape never shrink.
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

  /// No waiting at all.
  public static let immediate = Backoff.constant(.zero)

  /// The same interval each time.
  public static func constant(_ interval: Duration) -> Backoff { Backoff(.constant(interval)) }

  /// Starts with `first`, and adds `step` each time.
  ///
  /// A negative step shortens the interval, down to nothing.
  public static func linear(from first: Duration, by step: Duration) -> Backoff {
    Backoff(.linear(from: first, by: step))
  }

  /// Starts with `first`; each later interval is `multiplier` times the previous one.
  ///
  /// Interval n is first × multiplierⁿ⁻¹, to the nearest nanosecond. A multiplier that is not a
  /// number, or is above 1 by less than 10⁻¹², counts as 1; a negative one as 0.
  public static func exponential(from first: Duration, multiplier: Double = 2) -> Backoff {
    Backoff(.exponential(from: first, by: multiplier))
  }

  /// Starts with `first` twice; each later interval is the sum of the two previous intervals.
  public static func fibonacci(from first: Duration) -> Backoff {
    Backoff(.fibonacci(from: first))
  }

  /// Uses the interval that the closure returns for the failed attempt; a negative one means none.
  public static func custom(
    _ interval: @escaping @Sendable (RetryAttempt) -> Duration
  ) -> Backoff {
    Backoff(.custom(interval))
  }

  /// Returns this backoff with its delays spread by `jitter`, which replaces any earlier jitter.
  public func jittered(_ jitter: Jitter) -> Backoff {
    var copy = self
    copy.jitter = jitter
    return copy
  }

  /// Returns this backoff with no delay longer than `cap`, which replaces any earlier cap.
  ///
  /// The cap bounds the interval before jitter and the delay after it, whichever of the two methods
  /// is called first. A negative cap counts as zero.
  public func capped(at cap: Duration) -> Backoff {
    var copy = self
    copy.cap = cap
    return copy
  }
}

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

  /// The product of `first` and `multiplier` to the `exponent`, to the nearest nanosecond.
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
    // A product that is not below the limit saturates, and so does infinity.
    guard nanoseconds < Self.longestNanoseconds else { return .longest }
    return Duration(wholeNanoseconds: Int128(wholePart: nanoseconds))
  }

  /// The product of `first` and the Fibonacci number at `index`, of 1, 1, 2, 3, 5 and so on.
  private static func fibonacci(_ index: Int, times first: Duration) -> Duration {
    // The multiples of zero never saturate, so the loop would run `index` times.
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
  /// The attempt's number, counted from 1, determines the interval. Only ``Jitter/decorrelated``
  /// uses the delay before the attempt. The only side effect is on the generator: one number is
  /// drawn from it if jitter spreads the delay over a range.
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
  /// A custom shape gets the sum of the previous delays as its elapsed time.
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
  /// A text such as `exponential from 0.5 seconds × 1.5, ± 50.0 %, at most 60.0 seconds`.
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
  /// A text such as `full jitter` or `± 50.0 %`.
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

  /// This duration in nanoseconds, rounded towards zero; every duration fits.
  var wholeNanoseconds: Int128 { attoseconds / 1_000_000_000 }

  /// The duration of this many nanoseconds, or the nearest one that a `Duration` can hold.
  init(wholeNanoseconds nanoseconds: Int128) {
    let (product, overflow) = nanoseconds.multipliedReportingOverflow(by: 1_000_000_000)
    let nearest: Int128 = nanoseconds < 0 ? .min : .max
    self.init(attoseconds: overflow ? nearest : product)
  }

  /// The product, or the nearest duration that a `Duration` can hold.
  func multiplied(by factor: Int128) -> Duration {
    let (product, overflow) = attoseconds.multipliedReportingOverflow(by: factor)
    guard overflow else { return Duration(attoseconds: product) }
    return Duration(attoseconds: (self < .zero) == (factor < 0) ? .max : .min)
  }

  /// The sum, or the nearest duration that a `Duration` can hold.
  func adding(_ other: Duration) -> Duration {
    let (sum, overflow) = attoseconds.addingReportingOverflow(other.attoseconds)
    guard overflow else { return Duration(attoseconds: sum) }
    return Duration(attoseconds: other < .zero ? .min : .max)
  }
}

// The standard library's conversions between these two types are generic and not specialised. With
// them, a delay with jitter takes 1.5 µs (Swift 6.3); with the conversions here, it takes 0.2 µs.
extension Int128 {
  /// The whole part of a number that is not negative and is below 2¹²⁷.
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
  /// The number nearest to `value`, or a neighbor of the nearest.
  init(approximating value: Int128) {
    self = Double(Int64(value >> 64)) * 0x1p64 + Double(UInt64(truncatingIfNeeded: value))
  }
}
