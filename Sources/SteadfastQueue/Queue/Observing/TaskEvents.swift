/// An asynchronous sequence of what happens in a queue from now on, for one observer.
///
/// The sequence begins when ``TaskQueue/events`` is read, not when the loop begins. It ends when
/// the observing task is cancelled. It also ends when the queue is freed, or has been shut down and
/// its run has ended; the events until then come first.
///
/// Up to ``TaskQueueConfiguration/eventBufferSize`` events wait for a slow observer. Then the
/// oldest events are dropped, and ``TaskEvent/missed(count:)`` says how many.
///
/// The events of one task come in the order in which the changes that they report were stored. An
/// attempt begins when the earlier changes have been reported. Events of different tasks may come
/// in another order. If several processes share a store, a queue posts only what it has done
/// itself.
public struct TaskEvents: AsyncSequence, Sendable {
  /// What the sequence delivers.
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
