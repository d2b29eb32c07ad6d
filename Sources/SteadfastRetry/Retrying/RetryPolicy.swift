/// How often an operation is attempted, for how long, and with which delays.
///
/// If both limits are set, the one that is reached first ends the series. Without a limit
/// (`RetryPolicy(maxAttempts: nil)`), the series goes on until an attempt succeeds or the task is
/// cancelled.
public struct RetryPolicy: Sendable {
  /// The maximum number of attempts, including the first one; `nil` means no limit.
  ///
  /// A number below 1 counts as 1.
  public var maxAttempts: Int?
  /// The time from the start of the first attempt within which another attempt may begin; `nil`
  /// means no limit.
  ///
  /// The time on the clock counts, and includes the attempts as well as the delays between them.
  /// This limit does not cut an attempt short. To do that, also use
  /// ``withTimeout(_:clock:isolation:operation:)``.
  public var maxElapsedTime: Duration?
  /// How long to wait between the attempts.
  public var backoff: Backoff
  /// The source of random numbers for jitter; with a seed, every call draws the same numbers.
  public var randomness: Randomness

  /// Makes a policy.
  ///
  /// - Parameters:
  ///   - maxAttempts: the maximum number of attempts, including the first one; `nil` means no
  ///     limit.
  ///   - maxElapsedTime: how long after the start of the first attempt another attempt may begin;
  ///     by default without limit.
  ///   - backoff: how long to wait between the attempts.
  ///   - randomness: the source of random numbers for jitter.
  public init(
    maxAttempts: Int?,
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

  /// At most `count` attempts, including the first one, however long they take.
  public static func attempts(_ count: Int, backoff: Backoff = .default) -> RetryPolicy {
    RetryPolicy(maxAttempts: count, backoff: backoff)
  }

  /// Any number of attempts, none of which begins later than `limit` after the first one began.
  public static func within(_ limit: Duration, backoff: Backoff = .default) -> RetryPolicy {
    RetryPolicy(maxAttempts: nil, maxElapsedTime: limit, backoff: backoff)
  }
}

extension RetryPolicy: CustomStringConvertible {
  /// A description such as `at most 5 attempts; constant 1.0 seconds`.
  public var description: String {
    let attempts = maxAttempts.map { "at most \(max($0, 1)) attempt\($0 > 1 ? "s" : "")" }
    let time = maxElapsedTime.map { "within \($0)" }
    let limits = [attempts, time].compactMap(\.self)
    return "\(limits.isEmpty ? "without end" : limits.joined(separator: ", ")); \(backoff)"
  }
}
