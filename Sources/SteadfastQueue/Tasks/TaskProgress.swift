/// How far a task is, as its handler reports it: an asynchronous sequence of fractions from 0 to 1.
///
/// It begins with the last one that was reported, if any, and tells only the latest to an observer
/// that is slow. An attempt that fails sets it back to 0, success to 1. It ends with the task, or
/// when the observing task is cancelled.
public struct TaskProgress: AsyncSequence, Sendable {
  /// What the sequence delivers.
  public typealias Element = Double
  /// The sequence does not fail.
  public typealias Failure = Never

  private let cell: OutcomeCell

  init(_ cell: OutcomeCell) { self.cell = cell }

  /// Makes an iterator of its own.
  public func makeAsyncIterator() -> AsyncIterator { AsyncIterator(cell: cell) }

  /// Delivers the fractions.
  public struct AsyncIterator: AsyncIteratorProtocol {
    fileprivate let cell: OutcomeCell
    private var number = 0

    fileprivate init(cell: OutcomeCell) { self.cell = cell }

    /// The next fraction; `nil` when the task has ended or the observing one is cancelled.
    public mutating func next() async -> Double? { await next(isolation: #isolation) }

    /// The next fraction; `nil` when the task has ended or the observing one is cancelled.
    public mutating func next(isolation actor: isolated (any Actor)?) async -> Double? {
      guard let progress = await cell.progress(after: number) else { return nil }
      number = progress.number
      return progress.fraction
    }
  }
}

@available(*, unavailable)
extension TaskProgress.AsyncIterator: Sendable {}
