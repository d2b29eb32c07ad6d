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

  /// Starts at 500 ms and grows by half each time, ± 50 %, up to 60 s.
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

  /// Starts with `first`; each later interval is `multiplier` times the one before.
  ///
  /// Interval n is first × multiplierⁿ⁻¹, to the nearest nanosecond. A multiplier that is not a
  /// number, or is above 1 by less than 10⁻¹², counts as 1; a negative one as 0.
  public static func exponential(from first: Duration, multiplier: Double = 2) -> Backoff {
    Backoff(.exponential(from: first, by: multiplier))
  }

  /// Starts with `first` twice; each later interval is the sum of the two before.
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
