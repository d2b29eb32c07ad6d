/// A sequence of attempts to loop over: the first attempt comes at once, each later attempt after a
/// delay.
///
/// ```swift
/// for await _ in BackoffSequence(.attempts(5)) {
///   if await connect() { break }
/// }
/// ```
/// The sequence ends when one of the policy's limits is reached, or as soon as the task is
/// cancelled. It never throws. Every iterator starts with a first attempt.
/// ``AsyncIterator/reset()`` makes an iterator start over; a loop that reconnects calls it after a
/// connection has worked for a while.
public struct BackoffSequence<C: Clock>: AsyncSequence, Sendable where C.Duration == Duration {
  private let policy: RetryPolicy
  private let clock: C

  /// Makes a sequence of the attempts that `policy` allows, with delays on `clock`.
  public init(_ policy: RetryPolicy = .default, clock: C = ContinuousClock()) {
    self.policy = policy
    self.clock = clock
  }

  /// Makes an iterator that starts with a first attempt.
  public func makeAsyncIterator() -> AsyncIterator { AsyncIterator(policy, clock: clock) }
}

extension BackoffSequence {
  /// Waits for the delays of one ``BackoffSequence``, one after another.
  public struct AsyncIterator: AsyncIteratorProtocol {
    private enum State {
      case fresh
      case attempting
      case ended
    }

    private let policy: RetryPolicy
    private var machine: RetryMachine
    private var timer: RetryTimer<C>
    private let clock: C
    private var state = State.fresh

    init(_ policy: RetryPolicy, clock: C) {
      self.policy = policy
      self.clock = clock
      machine = RetryMachine(policy)
      timer = RetryTimer(clock)
    }

    /// Returns the next attempt, after its delay; `nil` when a limit is reached or the task is
    /// cancelled.
    public nonisolated(nonsending) mutating func next() async -> RetryAttempt? {
      await next(isolation: #isolation)
    }

    /// Returns the next attempt, after its delay; `nil` when a limit is reached or the task is
    /// cancelled.
    public mutating func next(isolation: isolated (any Actor)?) async -> RetryAttempt? {
      switch state {
      case .ended: return nil
      case .fresh: return Task.isCancelled ? end() : begin()
      case .attempting:
        machine.recordFailure(elapsed: timer.elapsed())
        guard case .retry(let delay) = machine.step(after: .retry) else { return end() }
        if Task.isCancelled { return end() }
        if delay == .zero {
          machine.beginAtOnce()
        } else {
          do { try await timer.sleep(for: delay) } catch { return end() }
          guard machine.begin(delay: delay, elapsed: timer.elapsed()) else { return end() }
        }
        return machine.attempt
      }
    }

    /// Starts over: the first attempt comes at once, and the limits count from here.
    ///
    /// An iterator that has ended also starts over. A seeded generator of random numbers continues,
    /// so the delays after a reset differ from those before it.
    public mutating func reset() {
      machine.reset()
      timer = RetryTimer(clock)
      state = .fresh
    }

    private mutating func begin() -> RetryAttempt {
      state = .attempting
      if policy.maxElapsedTime != nil { timer.start() }
      return machine.attempt
    }

    private mutating func end() -> RetryAttempt? {
      state = .ended
      return nil
    }
  }
}

@available(*, unavailable)
extension BackoffSequence.AsyncIterator: Sendable {}

/// An error that an operation throws if it got a result, but not yet the awaited one, and must be
/// retried.
///
/// With it, `withRetry` can wait for something:
/// ```swift
/// let every = Backoff.constant(.seconds(2))
/// let report = try await withRetry(.within(.seconds(60), backoff: every)) {
///   let report = try await api.report(id)
///   guard report.isComplete else { throw NotYet(report) }
///   return report
/// }
/// ```
/// When a limit of the policy is reached, `withRetry` throws the last `NotYet`, which contains the
/// last result.
public struct NotYet<Value: Sendable>: RetryAwareError, CustomStringConvertible {
  /// The result that came instead of the awaited result.
  public let value: Value
  /// How long to wait before the next attempt; `nil` for the policy's backoff.
  public let retryAfter: Duration?

  /// Makes a `NotYet` with the result that came instead of the awaited one.
  public init(_ value: Value, retryAfter: Duration? = nil) {
    self.value = value
    self.retryAfter = retryAfter
  }

  /// The decision to retry: after ``retryAfter`` or, if that is `nil`, after the policy's delay.
  public var retryDecision: RetryDecision { retryAfter.map { .retry(after: $0) } ?? .retry }

  /// The result that came instead of the awaited result, and what to do about it.
  public var description: String {
    "not yet the awaited result, but \(value); to wait longer, allow more attempts or more time"
  }
}

extension NotYet where Value == Void {
  /// Makes a `NotYet` without a result.
  public init(retryAfter: Duration? = nil) { self.init((), retryAfter: retryAfter) }
}
