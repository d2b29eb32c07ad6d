import Synchronization

/// Posts events to every observer.
///
/// Enqueueing a task races with performing or changing it. The first side to learn that a task is
/// stored posts its `.enqueued` event (``announce(_:)``). ``InFlightChanges`` keeps the other
/// events in order.
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
  /// It costs one atomic read while there is no observer.
  func post(_ event: @autoclosure () -> TaskEvent) {
    guard isObserved else { return }
    let observers = subscriptions.withLock { $0.observers }
    guard !observers.isEmpty else { return endObservation() }
    let event = event()
    for observer in observers { observer.post(event) }
  }

  /// Forgets the `.enqueued` events that are not posted yet, unless a new observer has come.
  func endObservation() {
    // The records, and what they hold, are freed outside of the lock.
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

  func willEnqueue(_ record: TaskRecord) {
    guard isObserved else { return }
    // Checks again inside of the lock: when the last observer has left, nothing forgets the task.
    announcements.withLock { if isObserved { $0[record.id] = record } }
  }

  func didNotEnqueue(_ record: TaskRecord) {
    guard isObserved else { return }
    announcements.withLock { _ = $0.removeValue(forKey: record.id) }
  }

  /// Posts the `.enqueued` event of a task, unless it was posted before.
  ///
  /// A second caller returns when the first one has left the event with every observer.
  func announce(_ id: TaskID) {
    guard isObserved else { return }
    let observers = announcements.withLock { announcements -> [EventSubscription] in
      guard let record = announcements.removeValue(forKey: id) else { return [] }
      let observers = subscriptions.withLock { $0.observers }
      for observer in observers { observer.leave(.enqueued(record)) }
      return observers
    }
    for observer in observers { observer.wake() }
  }
}
