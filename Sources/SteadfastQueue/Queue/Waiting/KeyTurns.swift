import Synchronization

/// Lets one caller at a time ask the store to replace, or to change, the task with a unique key.
///
/// While one caller takes over a key, a store can't say what becomes of the task that holds it.
/// Without turns, all other callers would have to ask again for each one that goes ahead.
final class KeyTurns: Sendable {
  fileprivate struct Turn {
    /// The waiting callers, in the order in which they came.
    var waiters: [CheckedContinuation<Void, Never>] = []
    /// The number of them that have had their turn.
    var servedCount = 0
    /// Those that wait until this turn ends, and want none themselves.
    var watchers: [CheckedContinuation<Void, Never>] = []

    mutating func serve() {
      servedCount += 1
      // A key that is never free must not hold every caller that has ever waited.
      guard servedCount * 2 > waiters.count else { return }
      waiters.removeFirst(servedCount)
      servedCount = 0
    }
  }

  /// The keys that a caller has a turn at.
  private let turns = Mutex<[String: Turn]>([:])
  /// Whether a caller has a turn at any key.
  private let areAny = Atomic(false)

  /// The number of keys that a caller has a turn at.
  var count: Int { turns.withLock { $0.count } }

  /// Returns when the caller has its turn at all of the keys; a call of ``end(_:)`` must follow.
  func begin(_ keys: Set<String>) async {
    // All callers take keys in the same order, so that no two wait for each other.
    for key in keys.sorted() { await begin(key) }
  }

  private func begin(_ key: String) async {
    await withCheckedContinuation { continuation in
      let isFree = turns.withLock { turns in
        guard turns[key] != nil else {
          turns[key] = Turn()
          areAny.store(true, ordering: .releasing)
          return true
        }
        turns[key]?.waiters.append(continuation)
        return false
      }
      if isFree { continuation.resume() }
    }
  }

  func end(_ keys: Set<String>) {
    for key in keys {
      let (next, watchers) = turns.withLock { turns in
        let watchers = turns[key]?.watchers ?? []
        turns[key]?.watchers = []
        defer { areAny.store(!turns.isEmpty, ordering: .releasing) }
        return (turns.next(at: key), watchers)
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
      let isTaken = turns.withLock { turns in
        turns[key]?.watchers.append(continuation)
        return turns[key] != nil
      }
      if !isTaken { continuation.resume() }
    }
  }
}

extension [String: KeyTurns.Turn] {
  /// Passes the turn to the caller that has waited longest, and returns it; `nil` if none waits.
  fileprivate mutating func next(at key: String) -> CheckedContinuation<Void, Never>? {
    guard let turn = self[key], turn.servedCount < turn.waiters.count else {
      self[key] = nil
      return nil
    }
    self[key]?.serve()
    return turn.waiters[turn.servedCount]
  }
}
