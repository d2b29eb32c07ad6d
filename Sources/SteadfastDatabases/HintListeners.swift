import Synchronization

/// Streams that yield an element when another process may have changed the tables.
package final class HintListeners: Sendable {
  private struct State {
    var listeners: [Int: AsyncStream<Void>.Continuation] = [:]
    var lastNumber = 0
    var isEnded = false
  }

  private let state = Mutex(State())

  package init() {}

  package var isEmpty: Bool { state.withLock { $0.listeners.isEmpty } }

  /// Adds a stream.
  ///
  /// `didEnd` is called after the stream has ended and was removed. After ``endAll()``, this
  /// returns a stream that has already ended, and `didEnd` is not called.
  package func makeStream(didEnd: @escaping @Sendable () -> Void = {}) -> AsyncStream<Void> {
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

  /// Yields an element to each open stream.
  package func notifyAll() {
    for listener in state.withLock({ Array($0.listeners.values) }) { listener.yield() }
  }

  /// Ends the open streams, and every stream that is added later.
  package func endAll() {
    let listeners = state.withLock { state in
      state.isEnded = true
      defer { state.listeners = [:] }
      return Array(state.listeners.values)
    }
    for listener in listeners { listener.finish() }
  }
}
