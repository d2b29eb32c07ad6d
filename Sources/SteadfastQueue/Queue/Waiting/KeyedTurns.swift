import Synchronization

/// Lets one caller at a time do something with a key, in the order in which they come.
///
/// While one caller replaces the task with a unique key, a store can't say what becomes of the task
/// that holds it. Without turns, all other callers would have to ask again for each one that goes
/// ahead. And a caller that has read the stored pause could follow it after a later one.
final class KeyedTurns: Sendable {
  private struct Turn {
    var waiters = WaiterList<CheckedContinuation<Void, any Error>>()
    /// Those that wait until this turn ends, and want none themselves.
    var watchers: [CheckedContinuation<Void, Never>] = []
  }

  private struct State {
    /// The keys that a caller has a turn at.
    var turns: [String: Turn] = [:]
    var lastWaiter: UInt64 = 0
  }

  private let state = Mutex(State())
  /// Whether a caller has a turn at any key.
  private let areAny = Atomic(false)

  /// The number of keys that a caller has a turn at.
  var count: Int { state.withLock { $0.turns.count } }

  /// Returns when the caller has its turn at all of the keys; a call of ``end(_:)`` must follow.
  ///
  /// A turn may last as long as the store is gone.
  ///
  /// - Throws: `CancellationError` when the caller is cancelled before its turn, unless it waits
  ///   `evenIfCancelled`. Then ``end(_:)`` must not be called.
  func begin(_ keys: Set<String>, evenIfCancelled: Bool = false) async throws {
    // All callers take keys in the same order, so that no two wait for each other.
    var taken: Set<String> = []
    do {
      for key in keys.sorted() {
        try await begin(key, evenIfCancelled)
        taken.insert(key)
      }
    } catch {
      end(taken)
      throw error
    }
  }

  private func begin(_ key: String, _ evenIfCancelled: Bool) async throws {
    let number = state.withLock { state in
      state.lastWaiter += 1
      return state.lastWaiter
    }
    try await withTaskCancellationHandler {
      try await withCheckedThrowingContinuation { continuation in
        let result = state.withLock { state -> Result<Void, any Error>? in
          guard state.turns[key] != nil else {
            state.turns[key] = Turn()
            areAny.store(true, ordering: .releasing)
            return .success(())
          }
          if Task.isCancelled, !evenIfCancelled { return .failure(CancellationError()) }
          state.turns[key]?.waiters.add(continuation, key: number)
          return nil
        }
        if let result { continuation.resume(with: result) }
      }
    } onCancel: {
      guard !evenIfCancelled else { return }
      state.withLock { $0.turns[key]?.waiters.remove(key: number) }?
        .resume(throwing: CancellationError())
    }
  }

  func end(_ keys: Set<String>) {
    for key in keys {
      let (next, watchers) = state.withLock { state in
        let watchers = state.turns[key]?.watchers ?? []
        state.turns[key]?.watchers = []
        let next = state.turns[key]?.waiters.popFirst()
        if next == nil { state.turns[key] = nil }
        areAny.store(!state.turns.isEmpty, ordering: .releasing)
        return (next, watchers)
      }
      for watcher in watchers { watcher.resume() }
      next?.resume()
    }
  }

  /// Returns when the caller that has its turn at a key now has had it.
  ///
  /// It does not wait for the callers behind that one. While no caller has a turn at any key, this
  /// costs one atomic read.
  func waitForPresentTurn(at key: String) async {
    guard areAny.load(ordering: .acquiring) else { return }
    await withCheckedContinuation { continuation in
      let isTaken = state.withLock { state in
        state.turns[key]?.watchers.append(continuation)
        return state.turns[key] != nil
      }
      if !isTaken { continuation.resume() }
    }
  }
}
