/// What happens in a queue from now on: an asynchronous sequence for one observer.
///
/// It begins when ``TaskQueue/events`` is read, not when the loop does. It ends when the observing
/// task is cancelled, the queue is freed, or the queue has been shut down and its run has ended, after
/// the events until then. Up to ``TaskQueueConfiguration/eventBufferSize`` events wait for a slow observer; then the oldest are
/// dropped, and ``TaskEvent/missed(count:)`` says how many.
///
/// The events of one task come in the order in which the store has kept what they tell, and an attempt
/// begins when what was kept before is told. Those of different tasks may come in another order. On a
/// store that several processes share, a queue tells what it has done itself.
public struct TaskEvents: AsyncSequence, Sendable {
  /// What the sequence delivers.
  public typealias Element = TaskEvent
  /// The sequence does not fail.
  public typealias Failure = Never

  private let subscription: EventSubscription

  init(_ subscription: EventSubscription) { self.subscription = subscription }

  /// Makes the iterator.
  ///
  /// The events are shared among all iterators of one sequence.
  public func makeAsyncIterator() -> AsyncIterator { AsyncIterator(subscription: subscription) }

  /// Delivers the events.
  public struct AsyncIterator: AsyncIteratorProtocol {
    fileprivate let subscription: EventSubscription

    /// The next event; `nil` when the task is cancelled or nothing more will be told.
    public mutating func next() async -> TaskEvent? { await subscription.next() }

    /// The next event; `nil` when the task is cancelled or nothing more will be told.
    public mutating func next(isolation actor: isolated (any Actor)?) async -> TaskEvent? {
      await subscription.next()
    }
  }
}

@available(*, unavailable)
extension TaskEvents.AsyncIterator: Sendable {}
