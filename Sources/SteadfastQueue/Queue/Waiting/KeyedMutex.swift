import Synchronization

/// A mutex for each key, which callers lock in the order of their arrival.
///
/// While one caller replaces the task with a unique key, a store can't say what happens to the
/// holder of the key. Without the mutex, all other callers would have to retry after each
/// replacement. And a caller that has read the stored pause could apply it after another caller has
/// applied a newer pause.
///
/// A key may stay locked as long as the store is unavailable. During that time, a cancelled caller
/// stops waiting.
final class KeyedMutex: Sendable {
  private struct LockedKey {
    var waiters = WaiterList<CheckedContinuation<Void, any Error>>()
    /// Callers that wait until the key is unlocked, and don't lock it themselves.
    var watchers = WaiterList<CheckedContinuation<Void, any Error>>()
  }

  private struct State {
    /// The keys that are locked, with the callers that wait for them.
    var lockedKeys: [String: LockedKey] = [:]
    /// The keys that cancelled callers wait for, by the callers' numbers.
    var cancelled: [UInt64: String] = [:]
    var lastNumber: UInt64 = 0
  }

  private let state = Mutex(State())
  /// Whether any key is locked.
  private let areAny = Atomic(false)
  private let availability: StoreAvailability

  init(_ availability: StoreAvailability) {
    self.availability = availability
    availability.notifyWhenUnavailable { [weak self] in self?.resumeCancelled() }
  }

  /// The number of locked keys.
  var count: Int { state.withLock { $0.lockedKeys.count } }

  /// Locks all of the keys, after waiting for them; a call of ``unlock(_:)`` must follow.
  ///
  /// - Throws: `CancellationError` if the caller is cancelled while it waits, and the store is
  ///   unavailable. Then ``unlock(_:)`` must not be called.
  func lock(_ keys: Set<String>) async throws {
    // All callers lock keys in the same order, so that no two wait for each other.
    var locked: Set<String> = []
    do {
      for key in keys.sorted() {
        try await wait(at: key) { lockedKeys in
          guard lockedKeys[key] == nil else { return \.waiters }
          lockedKeys[key] = LockedKey()
          return nil
        }
        locked.insert(key)
      }
    } catch {
      unlock(locked)
      throw error
    }
  }

  func unlock(_ keys: Set<String>) {
    // In virtual time, the callers are resumed in the same order each time.
    for key in keys.sorted() {
      let (next, watchers) = state.withLock { state in
        let watchers = state.lockedKeys[key]?.watchers.takeAll() ?? []
        let next = state.lockedKeys[key]?.waiters.popFirst()
        if next == nil { state.lockedKeys[key] = nil }
        areAny.store(!state.lockedKeys.isEmpty, ordering: .releasing)
        return (next, watchers)
      }
      for watcher in watchers { watcher.resume() }
      next?.resume()
    }
  }

  /// Waits until the caller that has locked a key unlocks it, but not for callers that lock the key
  /// after that one.
  ///
  /// While no key is locked, this costs one atomic read.
  ///
  /// - Throws: `CancellationError` if the caller is cancelled, and the store is unavailable.
  func waitForCurrentHolder(of key: String) async throws {
    guard areAny.load(ordering: .acquiring) else { return }
    try await wait(at: key) { $0[key] == nil ? nil : \.watchers }
  }

  /// Waits in the list of a key that the body returns; does not wait if the body returns `nil`.
  private func wait(
    at key: String,
    in list: (inout [String: LockedKey]) -> WritableKeyPath<
      LockedKey, WaiterList<CheckedContinuation<Void, any Error>>
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
          let list = list(&state.lockedKeys)
          areAny.store(!state.lockedKeys.isEmpty, ordering: .releasing)
          guard let list else { return .success(()) }
          if Task.isCancelled {
            if availability.isUnavailable { return .failure(CancellationError()) }
            state.cancelled[number] = key
          }
          state.lockedKeys[key]?[keyPath: list].add(continuation, key: number)
          return nil
        }
        if let result { continuation.resume(with: result) }
      }
    } onCancel: {
      state.withLock { $0.cancelled[number] = key }
      if availability.isUnavailable { resumeCancelled { $0 == number } }
    }
  }

  /// Resumes the cancelled callers that match `isMeant`, because the store is unavailable.
  private func resumeCancelled(where isMeant: (UInt64) -> Bool = { _ in true }) {
    let waiters = state.withLock { state in
      let meant = state.cancelled.filter { isMeant($0.key) }
      return meant.sorted { $0.key < $1.key }.compactMap { number, key in
        state.cancelled[number] = nil
        return state.lockedKeys[key]?.waiters.remove(key: number)
          ?? state.lockedKeys[key]?.watchers.remove(key: number)
      }
    }
    for waiter in waiters { waiter.resume(throwing: CancellationError()) }
  }
}
