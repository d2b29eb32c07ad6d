/// Attempts to loop over: the first comes at once, each later one after its delay.
///
/// ```swift
/// for await _ in BackoffSequence(.attempts(5)) {
///   if await connect() { break }
/// }
/// ```
/// The sequence ends when the policy's limits are reached, or as soon as the task is cancelled. It
/// never throws. Every iterator starts with a first attempt. ``AsyncIterator/reset()`` makes an
/// iterator start over; a loop that reconnects calls it after a connection has worked for a while.
public struct BackoffSequence<C: Clock>: AsyncSequence, Sendable where C.Duration == Duration {
  private let policy: RetryPolicy
  private let clock: C

  /// Makes a sequence of the attempts that `policy` allows, with delays on `clock`.
  public init(_ policy: RetryPolicy = .default, clock: C = ContinuousClock()) {
    self.policy = policy
    self.clock = clock
  }

  /// Makes an iterator at its beginning.
  public func makeAsyncIterator() -> AsyncIterator { AsyncIterator(policy, clock: clock) }
}
