import Synchronization

/// Tells every observer what happens.
///
/// Those who enqueue a task and those who perform or change it race: whoever learns that it was stored
/// tells that first (``announce(_:)``). ``ChangesUnderWay`` sees to the order of the rest.
final class EventHub: Sendable {
  private struct WeakSubscription { weak var value: EventSubscription? }

  private struct Subscriptions {
    var list: [WeakSubscription] = []
    /// Nothing is told any more.
    var hasEnded = false

    var observers: [EventSubscription] { list.compactMap(\.value) }
  }

  private let subscriptions = Mutex(Subscriptions())
  /// Tasks that are being enqueued, and whose being enqueued is still to be told.
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

  /// Ends what observers are told, after all that they have been told.
  func end() {
    let observers = subscriptions.withLock { subscriptions in
      defer { subscriptions = Subscriptions(hasEnded: true) }
      return subscriptions.observers
    }
    for observer in observers { observer.end() }
    endObservation()
  }

  /// How many tasks are still to be told of.
  var announcementCount: Int { announcements.withLock { $0.count } }

  var isObserved: Bool { hasObservers.load(ordering: .acquiring) }

  /// Costs one atomic read while nobody observes.
  func post(_ event: @autoclosure () -> TaskEvent) {
    guard isObserved else { return }
    let observers = subscriptions.withLock { $0.observers }
    guard !observers.isEmpty else { return endObservation() }
    let event = event()
    for observer in observers { observer.post(event) }
  }

  /// Forgets what is still to be told, unless somebody has begun to observe meanwhile.
  func endObservation() {
    // What a record holds goes outside of the lock.
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
    // Asked once more: nobody may be left, and then nobody forgets it any more.
    announcements.withLock { if isObserved { $0[record.id] = record } }
  }

  func didNotEnqueue(_ record: TaskRecord) {
    guard isObserved else { return }
    announcements.withLock { _ = $0.removeValue(forKey: record.id) }
  }

  /// Tells that a task was enqueued, unless that was told.
  ///
  /// Whoever comes second returns when the first has left the event with every observer.
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
