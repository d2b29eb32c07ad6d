/// How long to wait between attempts: a shape, with jitter and a cap if so wished.
///
/// ```swift
/// Backoff.exponential(from: .milliseconds(100), multiplier: 2)
///   .jittered(.full).capped(at: .seconds(10))
/// ```
/// Delays are whole nanoseconds. They are never negative, and the arithmetic saturates: no
/// attempt number, duration or factor traps. Without jitter, delays of a growing shape never
/// shrink.
public struct Backoff: Sendable {
  let shape: BackoffShape
  private(set) var jitter: Jitter?
  private(set) var cap: Duration?

  private init(_ shape: BackoffShape) { self.shape = shape }

  /// Starts at 500 ms and grows by half each time, ± 50 %, up to 60 s.
  ///
  /// The defaults of Google's HTTP client for Java, and of what followed it.
  public static let `default` = Backoff.exponential(from: .milliseconds(500), multiplier: 1.5)
    .jittered(.proportional(0.5)).capped(at: .seconds(60))

  /// No waiting at all.
  public static let immediate = Backoff.constant(.zero)

  /// The same interval each time.
  public static func constant(_ interval: Duration) -> Backoff { Backoff(.constant(interval)) }

  /// `first`, then longer by `step` each time.
  ///
  /// A negative step shortens the interval, down to nothing.
  public static func linear(from first: Duration, by step: Duration) -> Backoff {
    Backoff(.linear(from: first, by: step))
  }

  /// `first`, then `multiplier` times the interval before.
  ///
  /// Interval n is first × multiplierⁿ⁻¹, to the nearest nanosecond. A multiplier that is not a
  /// number, or is above 1 by less than 10⁻¹², counts as 1; a negative one as 0.
  public static func exponential(from first: Duration, multiplier: Double = 2) -> Backoff {
    Backoff(.exponential(from: first, by: multiplier))
  }

  /// `first`, `first` again, then the sum of the two intervals before.
  public static func fibonacci(from first: Duration) -> Backoff {
    Backoff(.fibonacci(from: first))
  }

  /// What `interval` says about the failed attempt; a negative interval means none.
  public static func custom(
    _ interval: @escaping @Sendable (RetryAttempt) -> Duration
  ) -> Backoff {
    Backoff(.custom(interval))
  }

  /// This backoff with its delays spread by `jitter`, in place of any jitter it had.
  public func jittered(_ jitter: Jitter) -> Backoff {
    var copy = self
    copy.jitter = jitter
    return copy
  }

  /// This backoff with no delay longer than `cap`, in place of any cap it had.
  ///
  /// The cap bounds the interval before jitter and the delay after it, in whichever order the two
  /// are asked for. A negative cap counts as zero.
  public func capped(at cap: Duration) -> Backoff {
    var copy = self
    copy.cap = cap
    return copy
  }
}
