import Synchronization

/// The event buffer of one observer, and the observer itself while it waits.
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

  /// Leaves an event without waking the observer; a call of ``wake()`` must follow.
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
      // If this is cancelled, the loop ends.
      try? await waiters.wait {
        state.withLock { $0.hasEnded || !$0.buffer.isEmpty } ? .success(()) : nil
      }
    }
    // The observer was woken and cancelled at the same time. Another reader gets the event.
    if state.withLock({ !$0.buffer.isEmpty }) { wake() }
    return nil
  }
}
