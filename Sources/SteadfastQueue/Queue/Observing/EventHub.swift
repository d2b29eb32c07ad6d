import Synchronization

/// Posts events to every observer.
///
/// The `.enqueued` event of a task must come before its other events. While the call that enqueues
/// the task waits for the store, a worker or another caller may already find the task there. So the
/// first of them posts the event (``postEnqueuedEvent(of:)``). ``InFlightChanges`` keeps the other
/// events in order.
final class EventHub: Sendable {
  private struct WeakSubscription { weak var value: EventSubscription? }

  private struct Subscriptions {
    var list: [WeakSubscription] = []
    /// Whether no more events are posted.
    var hasEnded = false

    var observers: [EventSubscription] { list.compactMap(\.value) }
  }

  private let subscriptions = Mutex(Subscriptions())
  /// The tasks that are being enqueued, and whose `.enqueued` event is not posted yet.
  private let announcements = Mutex<[TaskID: TaskRecord]>([:])
  private let hasObservers = Atomic(false)
  private let capacity: Int

  init(capacity: Int) { self.capacity = capacity }

  deinit { end() }

  func subscribe() -> TaskEvents {
    let subscription = EventSubscription(capacity: capacity)
    let hasEnded = subscriptions.withLock { subscriptions in
      guard !subscriptions.hasEnded else { return true }
      subscriptions.list.removeAll { $0.value == nil }
      subscriptions.list.append(WeakSubscription(value: subscription))
      hasObservers.store(true, ordering: .releasing)
      return false
    }
    if hasEnded { subscription.end() }
    return TaskEvents(subscription)
  }

  /// Ends the event sequences of all observers; events that were posted before are still delivered.
  func end() {
    let observers = subscriptions.withLock { subscriptions in
      defer { subscriptions = Subscriptions(hasEnded: true) }
      return subscriptions.observers
    }
    for observer in observers { observer.end() }
    endObservation()
  }

  /// The number of tasks whose `.enqueued` event is not posted yet.
  var announcementCount: Int { announcements.withLock { $0.count } }

  var isObserved: Bool { hasObservers.load(ordering: .acquiring) }

  /// Posts an event to every observer.
  ///
  /// While there is no observer, this makes no event, and costs one atomic read.
  func post(_ event: @autoclosure () -> TaskEvent) {
    guard isObserved else { return }
    let observers = subscriptions.withLock { $0.observers }
    guard !observers.isEmpty else { return endObservation() }
    let event = event()
    for observer in observers { observer.post(event) }
  }

  /// If there is no observer, records that, and discards the `.enqueued` events that are not posted
  /// yet.
  func endObservation() {
    // Release the records outside of the lock, because that may run code of the application.
    let forgotten = announcements.withLock { announcements in
      let isUnobserved = subscriptions.withLock { subscriptions in
        guard subscriptions.list.allSatisfy({ $0.value == nil }) else { return false }
        hasObservers.store(false, ordering: .releasing)
        return true
      }
      guard isUnobserved else { return [TaskID: TaskRecord]() }
      defer { announcements = [:] }
      return announcements
    }
    withExtendedLifetime(forgotten) {}
  }

  func prepareEnqueuedEvent(of record: TaskRecord) {
    guard isObserved else { return }
    // Check again while holding the lock: a record that is added after the last observer has left
    // is never discarded.
    announcements.withLock { if isObserved { $0[record.id] = record } }
  }

  func withdrawEnqueuedEvent(of record: TaskRecord) {
    guard isObserved else { return }
    announcements.withLock { _ = $0.removeValue(forKey: record.id) }
  }

  /// Posts the `.enqueued` event of a task, unless it was posted before.
  ///
  /// When this returns, the event is in every observer's buffer, even if another caller posts it at
  /// the same time.
  func postEnqueuedEvent(of id: TaskID) {
    guard isObserved else { return }
    let observers = announcements.withLock { announcements -> [EventSubscription] in
      guard let record = announcements.removeValue(forKey: id) else { return [] }
      let observers = subscriptions.withLock { $0.observers }
      for observer in observers { observer.buffer(.enqueued(record)) }
      return observers
    }
    for observer in observers { observer.wake() }
  }
}

/// The events for one observer, who may be waiting for the next one.
final class EventSubscription: Sendable {
  private struct State {
    var buffer: EventBuffer
    var hasEnded = false
  }

  private let state: Mutex<State>
  private let waiters = Waiters<Void>()

  init(capacity: Int) { state = Mutex(State(buffer: EventBuffer(capacity: capacity))) }

  func post(_ event: TaskEvent) {
    buffer(event)
    wake()
  }

  /// Adds an event without waking the observer; a call of ``wake()`` must follow.
  func buffer(_ event: TaskEvent) {
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
      // Cancellation ends the loop.
      try? await waiters.wait {
        state.withLock { $0.hasEnded || !$0.buffer.isEmpty } ? .success(()) : nil
      }
    }
    // If this reader was woken for an event and cancelled at the same time, wake another reader.
    if state.withLock({ !$0.buffer.isEmpty }) { wake() }
    return nil
  }
}

/// The latest events for a slow observer, and the number of events that were dropped.
struct EventBuffer: Sendable {
  private var events = FIFOQueue<TaskEvent>()
  private var missedCount = 0
  private let capacity: Int

  var isEmpty: Bool { events.isEmpty }

  init(capacity: Int) { self.capacity = max(1, capacity) }

  mutating func append(_ event: TaskEvent) {
    if events.count == capacity {
      _ = events.popFirst()
      missedCount += 1
    }
    events.append(event)
  }

  mutating func popFirst() -> TaskEvent? {
    if missedCount > 0 {
      defer { missedCount = 0 }
      return .missed(count: missedCount)
    }
    return events.popFirst()
  }
}

/// An asynchronous sequence of a queue's events, for one observer.
///
/// The sequence contains the events since ``TaskQueue/events`` was read, even if the loop begins
/// later. It ends when the observing task is cancelled. It also ends after the last event of a
/// queue that has been freed, or has been shut down and whose run has ended.
///
/// Up to ``TaskQueueConfiguration/eventBufferSize`` events are kept for a slow observer. If there
/// are more, the oldest events are dropped, and the event ``TaskEvent/missed(count:)`` has their
/// number.
///
/// Changes to one task are reported in the order in which they were stored, and an attempt begins
/// only after earlier changes to its task have been reported. Changes to different tasks may be
/// reported in another order. If several processes share a store, a queue reports only its own
/// changes.
public struct TaskEvents: AsyncSequence, Sendable {
  /// The type of the elements.
  public typealias Element = TaskEvent
  /// The type of errors, of which there are none.
  public typealias Failure = Never

  private let subscription: EventSubscription

  init(_ subscription: EventSubscription) { self.subscription = subscription }

  /// Makes an iterator.
  ///
  /// If a sequence has several iterators, each event goes to only one of them.
  public func makeAsyncIterator() -> AsyncIterator { AsyncIterator(subscription: subscription) }

  /// Delivers the events.
  public struct AsyncIterator: AsyncIteratorProtocol {
    fileprivate let subscription: EventSubscription

    /// Returns the next event, or `nil` if the task is cancelled or no event will follow.
    public mutating func next() async -> TaskEvent? { await subscription.next() }

    /// Returns the next event, or `nil` if the task is cancelled or no event will follow.
    public mutating func next(isolation actor: isolated (any Actor)?) async -> TaskEvent? {
      await subscription.next()
    }
  }
}

@available(*, unavailable)
extension TaskEvents.AsyncIterator: Sendable {}
