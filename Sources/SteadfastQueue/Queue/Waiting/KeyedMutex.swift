import Synchronization

/// A mutex for each key, which callers lock in the order of their arrival.
///
/// A queue uses it for unique keys: a store refuses a change while another caller replaces the task
/// with the same unique key, so without the mutex, all other callers would have to retry. A queue
/// also uses it for the stored pause, so that no caller applies a pause after a newer one.
///
/// A key may stay locked as long as the store is unavailable. During that time, a cancelled caller
/// stops waiting.
final class KeyedMutex: Sendable {
  private struct LockedKey {
    var waiters = WaiterList<CheckedContinuation<Void, any Error>>()
    /// Callers that wait until the current holder unlocks the key, and don't lock it themselves.
    var watchers = WaiterList<CheckedContinuation<Void, any Error>>()
  }

  private struct State {
    var lockedKeys: [String: LockedKey] = [:]
    /// For each cancelled caller that still waits, by its number: the key for which it waits.
    var cancelled: [UInt64: String] = [:]
    var lastNumber: UInt64 = 0
  }

  private let state = Mutex(State())
  private let isAnyLocked = Atomic(false)
  private let availability: StoreAvailability

  init(_ availability: StoreAvailability) {
    self.availability = availability
    availability.notifyWhenUnavailable { [weak self] in self?.resumeCancelled() }
  }

  /// The number of locked keys.
  var count: Int { state.withLock { $0.lockedKeys.count } }

  /// Waits until all of the keys can be locked, and locks them.
  ///
  /// The caller must then call ``unlock(_:)``, unless this throws.
  ///
  /// - Throws: `CancellationError` if the caller is cancelled while it waits, and the store is
  ///   unavailable.
  func lock(_ keys: Set<String>) async throws {
    // All callers lock keys in the same order, so that no two callers wait for each other.
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
    // Sort the keys, so that callers are resumed in a reproducible order in virtual time.
    for key in keys.sorted() {
      let (next, watchers) = state.withLock { state in
        let watchers = state.lockedKeys[key]?.watchers.takeAll() ?? []
        let next = state.lockedKeys[key]?.waiters.popFirst()
        if next == nil { state.lockedKeys[key] = nil }
        isAnyLocked.store(!state.lockedKeys.isEmpty, ordering: .releasing)
        return (next, watchers)
      }
      for watcher in watchers { watcher.resume() }
      next?.resume()
    }
  }

  /// Waits until the current holder of a key unlocks it; does not wait for the callers that lock
  /// the key after that.
  ///
  /// While no key is locked, this costs one atomic read.
  ///
  /// - Throws: `CancellationError` if the caller is cancelled, and the store is unavailable.
  func waitForCurrentHolder(of key: String) async throws {
    guard isAnyLocked.load(ordering: .acquiring) else { return }
    try await wait(at: key) { $0[key] == nil ? nil : \.watchers }
  }

  /// Adds the caller to the list of waiters for which `list` returns the key path, and waits; does
  /// not wait if `list` returns `nil`.
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
          isAnyLocked.store(!state.lockedKeys.isEmpty, ordering: .releasing)
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

  /// Resumes the cancelled callers whose numbers satisfy `shouldResume`, by throwing an error.
  private func resumeCancelled(where shouldResume: (UInt64) -> Bool = { _ in true }) {
    let waiters = state.withLock { state in
      let resumed = state.cancelled.filter { shouldResume($0.key) }
      return resumed.sorted { $0.key < $1.key }.compactMap { number, key in
        state.cancelled[number] = nil
        return state.lockedKeys[key]?.waiters.remove(key: number)
          ?? state.lockedKeys[key]?.watchers.remove(key: number)
      }
    }
    for waiter in waiters { waiter.resume(throwing: CancellationError()) }
  }
}
