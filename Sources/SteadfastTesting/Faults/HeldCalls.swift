import SteadfastRetry
import Synchronization

/// The calls that hang until they are let go, and the watchers that wait for such calls.
final class HeldCalls: Sendable {
  private struct State {
    var held: [CheckedContinuation<Void, Never>] = []
    var watchers: [Int: (count: Int, continuation: CancellableSuspension<Int>.Continuation)] = [:]
    var lastTicket = 0

    /// Removes and returns the watchers for which enough calls are held.
    mutating func takeSatisfied() -> [CancellableSuspension<Int>.Continuation] {
      let satisfied = watchers.filter { $0.value.count <= held.count }.keys.sorted()
      return satisfied.compactMap { watchers.removeValue(forKey: $0)?.continuation }
    }
  }

  private let state = Mutex(State())

  /// Holds a call until it is let go, unless `check`, called under the lock, returns true.
  func hold(unless check: () -> Bool) async {
    await withCheckedContinuation { call in
      let satisfied: [CancellableSuspension<Int>.Continuation]? = state.withLock { state in
        if check() { return nil }
        state.held.append(call)
        return state.takeSatisfied()
      }
      guard let satisfied else { return call.resume() }
      for watcher in satisfied { watcher.resume() }
    }
  }

  func letGo() -> Int {
    let calls = state.withLock { state in
      defer { state.held = [] }
      return state.held
    }
    for call in calls { call.resume() }
    return calls.count
  }

  /// Waits until at least `count` calls are held.
  func wait(for count: Int) async throws {
    try await CancellableSuspension<Int>.suspend { continuation in
      state.withLock { state in
        guard state.held.count < count else { return (nil, [continuation]) }
        state.lastTicket += 1
        state.watchers[state.lastTicket] = (count, continuation)
        return (state.lastTicket, [])
      }
    } withdraw: { ticket in
      state.withLock { $0.watchers.removeValue(forKey: ticket)?.continuation }
    }
  }
}
