/// How often, how long and how fast to try again.
///
/// Where both limits are set, the one that is reached first ends the series; without any it goes
/// on until it succeeds or its task is cancelled.
public struct RetryPolicy: Sendable {
  /// How many attempts to make in all, the first one included; nil means any number.
  ///
  /// Below 1 counts as 1.
  public var maxAttempts: Int?
  /// How long after the beginning of the first attempt another may begin; nil means any time.
  ///
  /// It is real time on the clock, spent in attempts as well as between them. It does not cut an
  /// attempt short: combine it with ``withTimeout(_:clock:isolation:operation:)`` for that.
  public var maxElapsedTime: Duration?
  /// How long to wait between the attempts.
  public var backoff: Backoff
  /// Where jitter's random numbers come from; every call starts anew from a seed.
  public var randomness: Randomness

  /// Makes a policy; every argument has a default.
  public init(
    maxAttempts: Int? = nil,
    maxElapsedTime: Duration? = nil,
    backoff: Backoff = .default,
    randomness: Randomness = .system
  ) {
    self.maxAttempts = maxAttempts
    self.maxElapsedTime = maxElapsedTime
    self.backoff = backoff
    self.randomness = randomness
  }

  /// Five attempts, with ``Backoff/default``.
  public static let `default` = RetryPolicy.attempts(5)

  /// Any number of attempts within 15 minutes, with ``Backoff/default``.
  ///
  /// What the ExponentialBackOff class does unless told otherwise.
  public static let exponentialBackOff = RetryPolicy.within(.seconds(15 * 60))

  /// At most this many attempts, the first one included, however long they take.
  public static func attempts(_ count: Int, backoff: Backoff = .default) -> RetryPolicy {
    RetryPolicy(maxAttempts: count, backoff: backoff)
  }

  /// Any number of attempts, none of which begins later than this after the first one began.
  public static func within(_ limit: Duration, backoff: Backoff = .default) -> RetryPolicy {
    RetryPolicy(maxElapsedTime: limit, backoff: backoff)
  }
}

extension RetryPolicy: CustomStringConvertible {
  /// As in `at most 5 attempts; constant 1.0 seconds`.
  public var description: String {
    let attempts = maxAttempts.map { "at most \(max($0, 1)) attempt\($0 > 1 ? "s" : "")" }
    let time = maxElapsedTime.map { "within \($0)" }
    let limits = [attempts, time].compactMap(\.self)
    return "\(limits.isEmpty ? "without end" : limits.joined(separator: ", ")); \(backoff)"
  }
}
