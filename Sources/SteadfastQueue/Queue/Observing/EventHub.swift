import Synchronization

/// Posts events to every observer.
///
/// The call that enqueues a task, and a worker or another caller that finds the task in the store,
/// run at the same time. Whichever first learns that the task is stored posts its `.enqueued` event
/// (``postEnqueuedEvent(of:)``). ``InFlightChanges`` keeps the other events in order.
final class EventHub: Sendable {
  private struct WeakSubscription { weak var value: EventSubscription? }

  private struct Subscriptions {
    var list: [WeakSubscription] = []
    /// Whether the hub has ended, and posts no more events.
    var hasEnded = false

    var observers: [EventSubscription] { list.compactMap(\.value) }
  }

  private let subscriptions = Mutex(Subscriptions())
  /// Tasks that are being enqueued, and whose `.enqueued` event is not posted yet.
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

  /// Ends the event sequences of all observers, after the events that were posted.
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
  /// While there is no observer, the call costs one atomic read.
  func post(_ event: @autoclosure () -> TaskEvent) {
    guard isObserved else { return }
    let observers = subscriptions.withLock { $0.observers }
    guard !observers.isEmpty else { return endObservation() }
    let event = event()
    for observer in observers { observer.post(event) }
  }

  /// Discards the `.enqueued` events that are not posted yet, unless there is a new observer.
  func endObservation() {
    // Free the records, and what they reference, outside of the lock.
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
    // Check again inside of the lock: once the last observer has left, nothing discards the record.
    announcements.withLock { if isObserved { $0[record.id] = record } }
  }

  func withdrawEnqueuedEvent(of record: TaskRecord) {
    guard isObserved else { return }
    announcements.withLock { _ = $0.removeValue(forKey: record.id) }
  }

  /// Posts the `.enqueued` event of a task, unless it was posted before.
  ///
  /// If two callers post it at the same time, the second returns only after the first has added the
  /// event to every observer's buffer.
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
    // The observer was woken and cancelled at the same time. Another reader gets the event.
    if state.withLock({ !$0.buffer.isEmpty }) { wake() }
    return nil
  }
}

/// The latest events for a slow observer, and the number of events that were dropped.
///
/// The buffer does not keep events in memory once they are dropped or delivered.
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

/// An asynchronous sequence of a queue's events from now on, for one observer.
///
/// The sequence begins when ``TaskQueue/events`` is read, not when the loop begins. It ends when
/// the observing task is cancelled. It also ends when the queue is freed, or has been shut down and
/// its run has ended; the events until then come first.
///
/// Up to ``TaskQueueConfiguration/eventBufferSize`` events wait for a slow observer. Then the
/// oldest events are dropped, and ``TaskEvent/missed(count:)`` says how many.
///
/// The events of one task arrive in the order in which the changes that they report were stored. An
/// attempt begins only after earlier changes have been reported. Events of different tasks may
/// arrive in another order. If several processes share a store, a queue posts only events of its
/// own changes.
public struct TaskEvents: AsyncSequence, Sendable {
  /// The elements of the sequence.
  public typealias Element = TaskEvent
  /// The sequence never fails.
  public typealias Failure = Never

  private let subscription: EventSubscription

  init(_ subscription: EventSubscription) { self.subscription = subscription }

  /// Makes the iterator.
  ///
  /// All iterators of one sequence share its events: each event goes to one of them.
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
