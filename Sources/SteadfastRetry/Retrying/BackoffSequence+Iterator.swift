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

    /// The next attempt, after its delay; nil when the limits are reached or the task is cancelled.
    public nonisolated(nonsending) mutating func next() async -> RetryAttempt? {
      await next(isolation: #isolation)
    }

    /// The next attempt, after its delay; nil when the limits are reached or the task is cancelled.
    public mutating func next(isolation: isolated (any Actor)?) async -> RetryAttempt? {
      switch state {
      case .ended: return nil
      case .fresh: return Task.isCancelled ? end() : begin()
      case .attempting:
        machine.fail(elapsed: timer.elapsed())
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
    /// An iterator that has ended starts over, too. Seeded random numbers continue where they were,
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
