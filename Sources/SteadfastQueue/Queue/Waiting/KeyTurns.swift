import Synchronization

/// Takes turns at unique keys: of those who replace the task of one key, one at a time asks the store.
///
/// A store can't say what becomes of a task whose key another one is just taking, so that all others
/// would have to ask again for each one that goes ahead.
final class KeyTurns: Sendable {
  fileprivate struct Turn {
    /// Those who wait, in the order in which they came.
    var waiters: [CheckedContinuation<Void, Never>] = []
    /// How many of them have had their turn.
    var servedCount = 0

    mutating func serve() {
      servedCount += 1
      // A key that is never free must not hold all who ever waited.
      guard servedCount * 2 > waiters.count else { return }
      waiters.removeFirst(servedCount)
      servedCount = 0
    }
  }

  /// The keys whose turn somebody has.
  private let turns = Mutex<[String: Turn]>([:])

  /// How many keys somebody has a turn at.
  var count: Int { turns.withLock { $0.count } }

  /// Returns when it is the caller's turn at all of the keys; ``end(_:)`` must follow.
  func begin(_ keys: Set<String>) async {
    // In one order for all, so that no two wait for each other.
    for key in keys.sorted() { await begin(key) }
  }

  private func begin(_ key: String) async {
    await withCheckedContinuation { continuation in
      let isFree = turns.withLock { turns in
        guard turns[key] != nil else {
          turns[key] = Turn()
          return true
        }
        turns[key]?.waiters.append(continuation)
        return false
      }
      if isFree { continuation.resume() }
    }
  }

  func end(_ keys: Set<String>) {
    for key in keys { turns.withLock { $0.next(at: key) }?.resume() }
  }
}

extension [String: KeyTurns.Turn] {
  /// The turn goes to the one that has waited longest, if any waits.
  fileprivate mutating func next(at key: String) -> CheckedContinuation<Void, Never>? {
    guard let turn = self[key], turn.servedCount < turn.waiters.count else {
      self[key] = nil
      return nil
    }
    self[key]?.serve()
    return turn.waiters[turn.servedCount]
  }
}
