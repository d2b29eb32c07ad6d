import SteadfastQueue
import Synchronization

/// Waits for checks, and no longer when none of their calls returns.
struct Patience: Sendable {
  private let limit: Duration
  private let clock: any Clock<Duration>

  /// - Parameter limit: how long no call may return, at least; at most it is twice that.
  init(_ limit: Duration) {
    self.limit = limit
    clock = VirtualTime.current?.clock ?? ContinuousClock()
  }

  /// Waits for what the body returns.
  ///
  /// - Throws: what the body throws; a ``ConformanceMismatch`` if no call returns any more.
  func wait<Value: Sendable>(
    for trial: ConformanceTrial,
    _ body: @escaping @Sendable () async throws -> Value
  ) async throws -> Value {
    let answer = FirstAnswer<Value>()
    // Not a child, which would be waited for.
    let checking = Task(executorPreference: RealWork.taskExecutor) {
      do {
        answer.give(.success(try await body()))
      } catch {
        answer.give(.failure(error))
      }
    }
    let watching = Task(executorPreference: RealWork.taskExecutor) {
      var last = -1
      while trial.progress != last {
        last = trial.progress
        do { try await clock.sleep(for: limit) } catch { return }
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

/// The first of several answers; the others are left unread.
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
