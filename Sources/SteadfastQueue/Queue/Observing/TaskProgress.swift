/// How far a task is, as its handler reports it: an asynchronous sequence of fractions from 0 to 1.
///
/// It begins with the last one that was reported, if any, and tells only the latest to an observer
/// that is slow. An attempt that fails sets it back to 0, success to 1. It ends with the task, when
/// the queue has been shut down, or when the observing task is cancelled.
public struct TaskProgress: AsyncSequence, Sendable {
  /// What the sequence delivers.
  public typealias Element = Double
  /// The sequence does not fail.
  public typealias Failure = Never

  private let task: EnqueuedTask

  init(_ task: EnqueuedTask) { self.task = task }

  /// Makes an iterator of its own.
  public func makeAsyncIterator() -> AsyncIterator { AsyncIterator(task: task) }

  /// Delivers the fractions.
  public struct AsyncIterator: AsyncIteratorProtocol {
    fileprivate let task: EnqueuedTask
    private var number = 0

    fileprivate init(task: EnqueuedTask) { self.task = task }

    /// The next fraction; `nil` when the task has ended or the observing one is cancelled.
    public mutating func next() async -> Double? { await next(isolation: #isolation) }

    /// The next fraction; `nil` when the task has ended or the observing one is cancelled.
    public mutating func next(isolation actor: isolated (any Actor)?) async -> Double? {
      guard let progress = await task.progress(after: number) else { return nil }
      number = progress.number
      return progress.fraction
    }
  }
}

@available(*, unavailable)
extension TaskProgress.AsyncIterator: Sendable {}
