import Synchronization

/// Lets one caller at a time do something with a key, in the order in which they come.
///
/// While one caller replaces the task with a unique key, a store can't say what becomes of the task
/// that holds it. Without turns, all other callers would have to ask again for each one that goes
/// ahead. And a caller that has read the stored pause could follow it after a later one.
///
/// A turn may last as long as the store is gone. A caller that is cancelled then waits no longer.
final class KeyedMutex: Sendable {
  private struct Turn {
    var waiters = WaiterList<CheckedContinuation<Void, any Error>>()
    /// Those that wait until this turn ends, and want none themselves.
    var watchers = WaiterList<CheckedContinuation<Void, any Error>>()
  }

  private struct State {
    /// The keys that a caller has a turn at.
    var turns: [String: Turn] = [:]
    /// The keys at which cancelled callers wait, by the callers' numbers.
    var cancelled: [UInt64: String] = [:]
    var lastNumber: UInt64 = 0
  }

  private let state = Mutex(State())
  /// Whether a caller has a turn at any key.
  private let areAny = Atomic(false)
  private let absence: StoreAvailability

  init(_ absence: StoreAvailability) {
    self.absence = absence
    absence.listen { [weak self] in self?.giveUp() }
  }

  /// The number of keys that a caller has a turn at.
  var count: Int { state.withLock { $0.turns.count } }

  /// Returns when the caller has its turn at all of the keys; a call of ``end(_:)`` must follow.
  ///
  /// - Throws: `CancellationError` when the caller is cancelled before its turn, and the store is
  ///   gone. Then ``end(_:)`` must not be called.
  func begin(_ keys: Set<String>) async throws {
    // All callers take keys in the same order, so that no two wait for each other.
    var taken: Set<String> = []
    do {
      for key in keys.sorted() {
        try await wait(at: key) { turns in
          guard turns[key] == nil else { return \.waiters }
          turns[key] = Turn()
          return nil
        }
        taken.insert(key)
      }
    } catch {
      end(taken)
      throw error
    }
  }

  func end(_ keys: Set<String>) {
    // In virtual time, the callers are resumed in the same order each time.
    for key in keys.sorted() {
      let (next, watchers) = state.withLock { state in
        let watchers = state.turns[key]?.watchers.takeAll() ?? []
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
  ///
  /// - Throws: `CancellationError` when the caller is cancelled, and the store is gone.
  func waitForPresentTurn(at key: String) async throws {
    guard areAny.load(ordering: .acquiring) else { return }
    try await wait(at: key) { $0[key] == nil ? nil : \.watchers }
  }

  /// Waits in a list at a key, unless the body returns none.
  private func wait(
    at key: String,
    in list: (inout [String: Turn]) -> WritableKeyPath<
      Turn, WaiterList<CheckedContinuation<Void, any Error>>
    >?
  ) async throws {
    let number = state.withLock { state in
      state.lastNumber += 1
      return state.lastNumber
    }
    defer { state.withLock { $0.cancelled[number] = nil } }
    try await withTaskCancellationHandler {
      try await withCheckedThrowingContinuation { continuation in
        let result = state.withLock { state -> Result<Void, any Error>? in
          let list = list(&state.turns)
          areAny.store(!state.turns.isEmpty, ordering: .releasing)
          guard let list else { return .success(()) }
          if Task.isCancelled {
            if absence.isGone { return .failure(CancellationError()) }
            state.cancelled[number] = key
          }
          state.turns[key]?[keyPath: list].add(continuation, key: number)
          return nil
        }
        if let result { continuation.resume(with: result) }
      }
    } onCancel: {
      state.withLock { $0.cancelled[number] = key }
      if absence.isGone { giveUp { $0 == number } }
    }
  }

  /// Resumes the cancelled callers that are meant, because the store is gone.
  private func giveUp(where isMeant: (UInt64) -> Bool = { _ in true }) {
    let waiters = state.withLock { state in
      let meant = state.cancelled.filter { isMeant($0.key) }
      return meant.sorted { $0.key < $1.key }.compactMap { number, key in
        state.cancelled[number] = nil
        return state.turns[key]?.waiters.remove(key: number)
          ?? state.turns[key]?.watchers.remove(key: number)
      }
    }
    for waiter in waiters { waiter.resume(throwing: CancellationError()) }
  }
}
