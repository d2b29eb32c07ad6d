import SteadfastRetry
import Synchronization

/// Calls that are held until somebody lets go of them, and those who wait until some are.
final class HeldCalls: Sendable {
  private struct State {
    var held: [CheckedContinuation<Void, Never>] = []
    var watchers: [Int: (count: Int, continuation: CancellableSuspension<Int>.Continuation)] = [:]
    var lastTicket = 0

    /// Takes out those who wait for no more than are held.
    mutating func takeSatisfied() -> [CancellableSuspension<Int>.Continuation] {
      let satisfied = watchers.filter { $0.value.count <= held.count }.keys.sorted()
      return satisfied.compactMap { watchers.removeValue(forKey: $0)?.continuation }
    }
  }

  private let state = Mutex(State())

  /// Holds a call, unless the check says at the last moment that it is to go on.
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

  /// Waits until at least so many are held.
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
