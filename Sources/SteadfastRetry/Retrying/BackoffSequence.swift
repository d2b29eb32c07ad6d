/// Attempts to loop over: the first at once, each later one after its delay.
///
/// ```swift
/// for await attempt in BackoffSequence(.attempts(5)) {
///   if await connect() { break }
/// }
/// ```
/// It ends when the policy's limits are reached, or as soon as the task is cancelled; it never
/// throws. Every iterator starts afresh. ``AsyncIterator/reset()`` starts one over, as a loop that
/// reconnects wants after a healthy while.
public struct BackoffSequence<C: Clock>: AsyncSequence, Sendable where C.Duration == Duration {
  private let policy: RetryPolicy
  private let clock: C

  /// The attempts that `policy` allows, with delays slept on `clock`.
  public init(_ policy: RetryPolicy = .default, clock: C = ContinuousClock()) {
    self.policy = policy
    self.clock = clock
  }

  /// An iterator at its beginning.
  public func makeAsyncIterator() -> AsyncIterator { AsyncIterator(policy, clock: clock) }
}
