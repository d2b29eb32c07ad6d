import Synchronization

/// One observer's buffer, and the observer while it waits.
final class EventSubscription: Sendable {
  private struct State {
    var buffer: EventBuffer
    var hasEnded = false
  }

  private let state: Mutex<State>
  private let waiters = Waiters<Void>()

  init(capacity: Int) { state = Mutex(State(buffer: EventBuffer(capacity: capacity))) }

  func post(_ event: TaskEvent) {
    leave(event)
    wake()
  }

  /// Leaves an event without waking the observer; ``wake()`` must follow.
  func leave(_ event: TaskEvent) {
    state.withLock { if !$0.hasEnded { $0.buffer.append(event) } }
  }

  func wake() { waiters.resumeLast(returning: ()) }

  func end() {
    state.withLock { $0.hasEnded = true }
    waiters.resumeAll(with: .success(()))
  }

  func next() async -> TaskEvent? {
    while !Task.isCancelled {
      let (event, hasEnded) = state.withLock { ($0.buffer.popFirst(), $0.hasEnded) }
      if let event { return event }
      if hasEnded { return nil }
      // Cancelled: the loop ends.
      try? await waiters.wait {
        state.withLock { $0.hasEnded || !$0.buffer.isEmpty } ? .success(()) : nil
      }
    }
    // Woken and cancelled at the same time: the event is for another reader.
    if state.withLock({ !$0.buffer.isEmpty }) { wake() }
    return nil
  }
}
