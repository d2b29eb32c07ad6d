import Synchronization

/// Tasks that wait for a value, each of which is resumed exactly once.
///
/// A task is resumed with a value, with an error, or by being cancelled. The state that it waits
/// for is elsewhere, behind its own lock. Code that changes the state resumes waiters after the
/// change. A waiter has the state checked at the last moment, so that it misses no change.
final class Waiters<Value: Sendable>: Sendable {
  private struct State {
    var list = WaiterList<CheckedContinuation<Value, any Error>>()
    private var lastKey: UInt64 = 0

    /// Draws the key of a waiter, which is greater than those before.
    mutating func nextKey() -> UInt64 {
      lastKey += 1
      return lastKey
    }
  }

  private let state = Mutex(State())

  /// Waits to be resumed, unless `check` already has a result.
  ///
  /// - Throws: `CancellationError` when cancelled.
  func wait(unless check: () -> Result<Value, any Error>?) async throws -> Value {
    let key = state.withLock { $0.nextKey() }
    return try await withTaskCancellationHandler {
      try await withCheckedThrowingContinuation { continuation in
        let result = state.withLock { state -> Result<Value, any Error>? in
          if let result = check() { return result }
          if Task.isCancelled { return .failure(CancellationError()) }
          state.list.add(continuation, key: key)
          return nil
        }
        if let result { continuation.resume(with: result) }
      }
    } onCancel: {
      state.withLock { $0.list.remove(key: key) }?.resume(throwing: CancellationError())
    }
  }

  /// Waits to be resumed with a value, unless `check` already has one.
  ///
  /// A cancellation resumes the caller with what `cancelled` returns, or not at all. These waiters
  /// must not be resumed with an error.
  func waitUncancelled(
    unless check: () -> Value?,
    cancelled: @Sendable () -> Value?
  ) async -> Value {
    let key = state.withLock { $0.nextKey() }
    return await withTaskCancellationHandler {
      await waitUncancelled(key, unless: check)
    } onCancel: {
      guard let value = cancelled() else { return }
      state.withLock { $0.list.remove(key: key) }?.resume(returning: value)
    }
  }

  /// Waits to be resumed with a value, even if cancelled, unless `check` already has one.
  ///
  /// These waiters must not be resumed with an error.
  func waitUncancelled(unless check: () -> Value?) async -> Value {
    await waitUncancelled(nil, unless: check)
  }

  private func waitUncancelled(_ key: UInt64?, unless check: () -> Value?) async -> Value {
    let result = try? await withCheckedThrowingContinuation { continuation in
      let value = state.withLock { state -> Value? in
        if let value = check() { return value }
        state.list.add(continuation, key: key ?? state.nextKey())
        return nil
      }
      if let value { continuation.resume(returning: value) }
    }
    guard let result else {
      preconditionFailure("an error was sent to those who can't be told of one")
    }
    return result
  }

  /// Resumes the waiter that came last, if there is one.
  func resumeLast(returning value: Value) {
    state.withLock { $0.list.popLast() }?.resume(returning: value)
  }

  /// Resumes all waiters.
  func resumeAll(with result: Result<Value, any Error>) {
    let all = state.withLock { state in state.list.isEmpty ? [] : state.list.takeAll() }
    for continuation in all { continuation.resume(with: result) }
  }
}
