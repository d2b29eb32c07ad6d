/// An asynchronous sequence of a task's progress, from 0 to 1, as its handler reports it.
///
/// The sequence begins with the fraction that was reported last, if there is one. A slow observer
/// gets only the latest fraction. A failed attempt sets the progress back to 0, and success sets it
/// to 1. The sequence ends when the task ends, when the queue has been shut down, or when the
/// observing task is cancelled. In the task's own handler, it has what was reported so far, and
/// ends.
///
/// The fractions are not stored. If another process performs the task, the sequence has none of
/// them, and ends when the queue, while it runs, finds in the store that the task has ended: after
/// 1 if it has succeeded and is retained.
public struct TaskProgress: AsyncSequence, Sendable {
  /// What the sequence delivers.
  public typealias Element = Double
  /// The sequence never fails.
  public typealias Failure = Never

  private let task: EnqueuedTask

  init(_ task: EnqueuedTask) { self.task = task }

  /// Makes an iterator that is independent of others.
  public func makeAsyncIterator() -> AsyncIterator { AsyncIterator(task: task) }

  /// Delivers the fractions.
  public struct AsyncIterator: AsyncIteratorProtocol {
    fileprivate let task: EnqueuedTask
    private var number = 0

    fileprivate init(task: EnqueuedTask) { self.task = task }

    /// Returns the next fraction, or `nil` if the task has ended or the observing one is cancelled.
    public mutating func next() async -> Double? { await next(isolation: #isolation) }

    /// Returns the next fraction, or `nil` if the task has ended or the observing one is cancelled.
    public mutating func next(isolation actor: isolated (any Actor)?) async -> Double? {
      guard let progress = await task.progress(after: number) else { return nil }
      number = progress.number
      return progress.fraction
    }
  }
}

@available(*, unavailable)
extension TaskProgress.AsyncIterator: Sendable {}
