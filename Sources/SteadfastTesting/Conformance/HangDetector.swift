import SteadfastQueue
import SteadfastRetry
import Synchronization

/// Waits for a check, and gives up when none of its calls returns.
///
/// It waits for the limit in many parts, each of which ends with a turn of the executor. So on a
/// machine so busy that a turn takes seconds, a call that needs a few turns does not count as a
/// call that hangs.
struct HangDetector: Sendable {
  private static let parts = 60

  private let limit: Duration
  private let clock: any Clock<Duration>

  /// Makes a wait with this limit.
  ///
  /// - Parameters:
  ///   - limit: how long the check may go on without a call that returns.
  ///   - clock: the clock that measures the limit; by default the clock of the current virtual
  ///     time, if there is one.
  init(
    _ limit: Duration,
    clock: any Clock<Duration> = VirtualTime.current?.clock ?? ContinuousClock()
  ) {
    self.limit = limit
    self.clock = clock
  }

  /// Runs the body and returns its result.
  ///
  /// - Throws: what the body throws; a ``ConformanceMismatch`` if no call returns within the limit.
  func wait<Value: Sendable>(
    for trial: RequirementCheck,
    _ body: @escaping @Sendable () async throws -> Value
  ) async throws -> Value {
    let answer = FirstAnswer<Value>()
    // Not a child task: the parent would wait for it.
    let checking = Task(executorPreference: RealWork.taskExecutor) {
      do {
        answer.give(.success(try await body()))
      } catch {
        answer.give(.failure(error))
      }
    }
    let watching = Task(executorPreference: RealWork.taskExecutor) {
      var last = trial.progress
      var waited = 0
      while waited < Self.parts {
        do { try await clock.wait(for: limit / Self.parts) } catch { return }
        let progress = trial.progress
        waited = progress == last ? waited + 1 : 0
        last = progress
      }
      let found = "for \(limit) none has returned"
      answer.give(.failure(ConformanceMismatch(expected: "each call returns", found: found)))
      checking.cancel()
    }
    defer { watching.cancel() }
    return try await withTaskCancellationHandler {
      try await answer.wait()
    } onCancel: {
      checking.cancel()
    }
  }
}

/// The first of several answers; later ones are ignored.
private final class FirstAnswer<Value: Sendable>: Sendable {
  private struct State {
    var answer: Result<Value, any Error>?
    var reader: CheckedContinuation<Value, any Error>?
  }

  private let state = Mutex(State())

  func give(_ answer: Result<Value, any Error>) {
    let reader = state.withLock { state in
      guard state.answer == nil else { return nil as CheckedContinuation<Value, any Error>? }
      state.answer = answer
      return state.reader.take()
    }
    reader?.resume(with: answer)
  }

  func wait() async throws -> Value {
    try await withCheckedThrowingContinuation { reader in
      let answer = state.withLock { state in
        if state.answer == nil { state.reader = reader }
        return state.answer
      }
      if let answer { reader.resume(with: answer) }
    }
  }
}
