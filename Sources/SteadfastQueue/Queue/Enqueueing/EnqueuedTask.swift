import Synchronization
public import SystemFoundation

/// An enqueued task: its ID, its progress, and a way to wait for its outcome.
public struct EnqueuedTask: Sendable, Identifiable {
  private let handle: OutcomeHandle
  private let queue: QueueCore
  /// Whether the call that returned this value added the task.
  ///
  /// It is `false` if a task with the same unique key is returned in its place, and if the task was
  /// looked up with ``TaskQueue/task(_:)``.
  public let isNew: Bool

  init(_ task: AdmittedTask, in queue: QueueCore) {
    handle = task.handle
    isNew = task.isNew
    self.queue = queue
  }

  /// The task's ID.
  public var id: TaskID { handle.id }

  /// The task's progress, as its handler reports it.
  public var progress: TaskProgress { TaskProgress(self) }

  /// Returns the task as the store holds it: its state, its dates, its failures.
  ///
  /// - Returns: the task; `nil` if it does not exist any more.
  /// - Throws: what the store throws.
  public func record() async throws -> TaskRecord? {
    try await queue.opened.storage.record(of: id)
  }

  /// Cancels the task, or its attempt if it is being performed.
  ///
  /// - Returns: whether the task existed and had not ended.
  /// - Throws: what the store throws.
  @discardableResult
  public func cancel() async throws -> Bool {
    try await queue.opened.results.ask(.cancel, of: id)
  }

  /// Sets the date from which the task may be performed, as ``TaskQueue/reschedule(_:to:)`` does.
  ///
  /// - Returns: whether the task existed, had not ended, and was not being performed.
  /// - Throws: as ``TaskQueue/reschedule(_:to:)``.
  @discardableResult
  public func reschedule(to date: Date) async throws -> Bool {
    try await queue.opened.results.reschedule(id, to: date)
  }

  /// Makes the task available now, as ``TaskQueue/performNow(_:)`` does.
  ///
  /// - Returns: whether the task existed, had not ended, was not being performed, and was not
  ///   available already.
  /// - Throws: as ``TaskQueue/performNow(_:)``.
  @discardableResult
  public func performNow() async throws -> Bool {
    try await queue.opened.results.ask(.reschedule(to: nil), of: id)
  }

  /// Waits until the task has succeeded, and returns what its handler returned.
  ///
  /// The value is not stored, and other processes don't know it. Only a caller that has held an
  /// `EnqueuedTask` of the task since before it succeeded gets the value.
  /// - Parameter type: the type of what the handler returns.
  /// - Returns: what the handler returned.
  /// - Throws: a ``TaskQueueError`` with the code ``TaskQueueError/Code/noValue`` if the task was
  ///   abandoned or cancelled, or if the value is not known or has another type; what ``outcome()``
  ///   throws.
  public func value<Value: Sendable>(as type: Value.Type = Value.self) async throws -> Value {
    switch try await outcome() {
    case .succeeded:
      if let value = handle.value as? Value { return value }
      let found = handle.value.map { "it is of the type \(Swift.type(of: $0))" }
      throw TaskQueueError(
        .noValue,
        "the task \(id) has succeeded, but not with a value of the type \(type): "
          + (found ?? "its value is not known here")
      )
    case .abandoned(let reason):
      throw TaskQueueError(.noValue, "the task \(id) was abandoned: \(reason)")
    case .cancelled:
      throw TaskQueueError(.noValue, "the task \(id) was cancelled")
    }
  }

  /// Waits until the task has ended, and returns its outcome.
  ///
  /// If the task has ended already, the call returns at once. While the queue does not run, the
  /// call goes on waiting. If a task with the same unique key supersedes this one
  /// (``TaskEvent/superseded(_:by:)``), the outcome is that of the other task.
  ///
  /// A handler that waits for another task of its queue keeps its worker busy: with one worker
  /// (``TaskQueueConfiguration/maxConcurrentTasks``), the other task never begins.
  ///
  /// - Throws: `CancellationError` when the waiting is cancelled; the task goes on. A
  ///   ``TaskQueueError`` in three cases: the queue was shut down before the task ended; the task
  ///   has ended and was not retained, and was there before or was performed by another process;
  ///   the caller is the task's own handler, or something that the handler started, and would wait
  ///   for itself. A Swift task that a handler has started, and that goes on after it, counts as
  ///   started by the handler that the same worker calls next: let such a task be detached. What
  ///   the store throws.
  public func outcome() async throws -> TaskOutcome {
    if let outcome = handle.outcome { return outcome }
    let isLookedUp = queue.dispatch.hasEnded || mayHaveEndedUntold
    if isLookedUp, let outcome = try await storedOutcome() { return outcome }
    if queue.dispatch.callingTask == id { throw waitsForItself }
    return try await RealWork.waiting({ [id, queue] in await queue.whyIsAwaited(id, $0) }) {
      try await handle.wait { queue.dispatch.machine.withLock { $0.reasonToFailWaiters } }
    }
  }

  /// Whether the task may have ended before anything in this process was notified.
  ///
  /// It was there before, another process that shares the store may have performed it, or the
  /// answer to a call that has ended it was lost.
  private var mayHaveEndedUntold: Bool {
    !isNew || queue.store.sharing != nil
      || queue.observers.mayMissEnds.load(ordering: .acquiring)
  }

  private var waitsForItself: TaskQueueError {
    TaskQueueError(
      .waitsForItself,
      "the handler of the task \(id) waits for the outcome of its own task, which ends when the "
        + "handler does"
    )
  }

  /// Waits for a report of progress after this many reports; `nil` when none will come.
  func progress(after number: Int) async -> OutcomeHandle.Progress? {
    if number == 0, mayHaveEndedUntold, handle.outcome == nil,
      await isOverInStore(), handle.outcome == nil
    {
      return nil
    }
    // The task's own handler would wait for what it is to report itself.
    return await handle.progress(after: number) {
      queue.dispatch.hasEnded || queue.dispatch.callingTask == id
    }
  }

  /// Returns whether the task has ended in the store; `true` if the store can't tell.
  private func isOverInStore() async -> Bool {
    do { return try await storedOutcome() != nil } catch { return true }
  }

  /// Returns the outcome in the store; `nil` if it has not ended, or its end is reported soon.
  private func storedOutcome() async throws -> TaskOutcome? {
    guard let record = try await queue.storage.record(of: id) else {
      // It may have ended and gone since the handle was read, or its end is stored and not yet
      // reported.
      if let outcome = handle.outcome { return outcome }
      if handle.isSuperseded { return nil }
      if queue.dispatch.machine.withLock({ $0.isUnsettled(id) }) { return nil }
      // The queue has ended it at a caller's request, perhaps, and reports that in a moment.
      try await queue.observers.changes.wait(until: .allIsTold, of: id)
      if let outcome = handle.outcome { return outcome }
      throw Results.unknown(id)
    }
    // While the queue runs, it reports a success that it has stored a moment later, with its value.
    if record.outcome == .succeeded,
      queue.dispatch.machine.withLock({ $0.mode != nil && $0.isUnsettled(id) })
    {
      return nil
    }
    return record.outcome
  }
}

extension EnqueuedTask: CustomStringConvertible {
  /// The ID and the queue, as in `task 0199… in the queue 'uploads'`.
  public var description: String {
    "task \(id) in the queue '\(queue.name)'\(isNew ? "" : ", which was there")"
  }
}

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
