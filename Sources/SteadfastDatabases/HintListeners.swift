import Synchronization

/// The streams that report that another process may have changed the tables.
package final class HintListeners: Sendable {
  private struct State {
    var listeners: [Int: AsyncStream<Void>.Continuation] = [:]
    var lastNumber = 0
    var isEnded = false
  }

  private let state = Mutex(State())

  package init() {}

  package var isEmpty: Bool { state.withLock { $0.listeners.isEmpty } }

  /// Starts a stream, and calls `didEnd` after the stream ended and was removed.
  package func stream(didEnd: @escaping @Sendable () -> Void = {}) -> AsyncStream<Void> {
    let (stream, continuation) = AsyncStream<Void>.makeStream(bufferingPolicy: .bufferingNewest(1))
    let number = state.withLock { state -> Int? in
      guard !state.isEnded else { return nil }
      state.lastNumber += 1
      state.listeners[state.lastNumber] = continuation
      return state.lastNumber
    }
    guard let number else {
      continuation.finish()
      return stream
    }
    continuation.onTermination = { [weak self] _ in
      self?.state.withLock { _ = $0.listeners.removeValue(forKey: number) }
      didEnd()
    }
    return stream
  }

  /// Reports a possible change on each open stream.
  package func tell() {
    for listener in state.withLock({ Array($0.listeners.values) }) { listener.yield() }
  }

  /// Ends the open streams, and each stream that is started later.
  package func end() {
    let listeners = state.withLock { state in
      state.isEnded = true
      defer { state.listeners = [:] }
      return Array(state.listeners.values)
    }
    for listener in listeners { listener.finish() }
  }
}
