import Synchronization
public import SystemFoundation

/// An enqueued task: its ID, its progress, and a way to wait for its outcome.
public struct EnqueuedTask: Sendable, Identifiable {
  private let handle: OutcomeHandle
  private let queue: QueueCore
  /// Whether the call that returned this value added the task.
  ///
  /// `false` means that the call returned an existing task with the same unique key, or looked the
  /// task up (``TaskQueue/task(_:)``).
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

  /// Returns the task's record from the store, with its state, its dates and its failures.
  ///
  /// - Returns: the record; `nil` if the task no longer exists.
  /// - Throws: what the store throws.
  public func record() async throws -> TaskRecord? {
    try await queue.opened.storage.record(of: id)
  }

  /// Cancels the task, as ``TaskQueue/cancel(_:)`` does.
  ///
  /// - Returns: the same as ``TaskQueue/cancel(_:)``.
  /// - Throws: the same errors as ``TaskQueue/cancel(_:)``.
  @discardableResult
  public func cancel() async throws -> Bool {
    try await queue.endTasks { try await $0.carryOut(.cancel, for: id) }
  }

  /// Sets the earliest date at which the task may be performed, as
  /// ``TaskQueue/reschedule(_:to:)`` does.
  ///
  /// - Returns: whether the task existed, had not ended, and was not being performed.
  /// - Throws: the same errors as ``TaskQueue/reschedule(_:to:)``.
  @discardableResult
  public func reschedule(to date: Date) async throws -> Bool {
    try await queue.opened.results.reschedule(id, to: date)
  }

  /// Makes the task available now, as ``TaskQueue/performNow(_:)`` does.
  ///
  /// - Returns: whether the task existed, had not ended, was not being performed, and was not yet
  ///   available.
  /// - Throws: the same errors as ``TaskQueue/performNow(_:)``.
  @discardableResult
  public func performNow() async throws -> Bool {
    try await queue.opened.results.carryOut(.reschedule(to: nil), for: id)
  }

  /// Waits until the task has succeeded, and returns what its handler returned.
  ///
  /// The value is not stored, so it is known only in the process that performed the task, and only
  /// if an `EnqueuedTask` for the task has existed there since before the task succeeded.
  /// - Parameter type: the type of the value that the handler returns.
  /// - Returns: the value that the handler returned.
  /// - Throws: a ``TaskQueueError`` with the code ``TaskQueueError/Code/noValue`` if the task was
  ///   abandoned or cancelled, or if the value is not known or has another type; the errors of
  ///   ``outcome()``.
  public func value<Value: Sendable>(as type: Value.Type = Value.self) async throws -> Value {
    switch try await outcome() {
    case .succeeded:
      if let value = handle.value as? Value { return value }
      let found = handle.value.map { "it is of the type \(Swift.type(of: $0))" }
      throw TaskQueueError(
        .noValue,
        "the task \(id) has succeeded, but not with a value of the type \(type): "
          + (found ?? "its value is not known in this process")
      )
    case .abandoned(let reason):
      throw TaskQueueError(.noValue, "the task \(id) was abandoned: \(reason)")
    case .cancelled:
      throw TaskQueueError(.noValue, "the task \(id) was cancelled")
    }
  }

  /// Waits until the task has ended, and returns its outcome.
  ///
  /// If the task has already ended, the call returns at once. While the queue does not run, the
  /// call waits. If a task with the same unique key replaces this one
  /// (``TaskEvent/superseded(_:by:)``), the call returns the outcome of the new task.
  ///
  /// A handler that waits for another task of its queue keeps its worker busy. With one worker
  /// (``TaskQueueConfiguration/maxConcurrentTasks``), the other task never starts.
  ///
  /// A handler can't wait for its own task, and neither can a Swift task that the handler started.
  /// A Swift task that outlives the handler that started it counts as started by the next handler
  /// on the same worker. Use a detached Swift task for such work.
  ///
  /// - Throws: `CancellationError` when the caller is cancelled, while the task itself continues; a
  ///   ``TaskQueueError`` if the queue is shut down before the task has ended, if the caller is the
  ///   task's own handler, or if the task has ended without being retained, so that its outcome is
  ///   unknown; what the store throws. The outcome can be unknown if ``isNew`` is `false`, or
  ///   another process performed the task.
  public func outcome() async throws -> TaskOutcome {
    if let outcome = handle.outcome { return outcome }
    let isLookedUp = queue.dispatch.hasEnded || mayHaveEndedUnnoticed
    if isLookedUp, let outcome = try await storedOutcome() { return outcome }
    if queue.dispatch.callingTask == id { throw waitsForItselfError }
    return try await RealWork.reportingWait({ [id, queue] in await queue.whyIsAwaited(id, $0) }) {
      try await handle.wait { queue.dispatch.machine.withLock { $0.reasonToFailWaiters } }
    }
  }

  /// Whether the task may have ended without a report to this process.
  ///
  /// This is possible if the task already existed, if another process may have performed it, or if
  /// the store's answer to a change that ended the task was lost.
  private var mayHaveEndedUnnoticed: Bool {
    !isNew || queue.store.sharing != nil
      || queue.observers.mayHaveUnreportedOutcomes.load(ordering: .acquiring)
  }

  private var waitsForItselfError: TaskQueueError {
    TaskQueueError(
      .waitsForItself,
      "the handler of the task \(id) waits for the outcome of its own task, which ends only when the "
        + "handler returns; wait outside of the handler"
    )
  }

  /// Waits for a progress report after the report with a number; returns `nil` if there will be
  /// none.
  func progress(after number: Int) async -> OutcomeHandle.Progress? {
    if number == 0, mayHaveEndedUnnoticed, handle.outcome == nil,
      await hasEndedInStore(), handle.outcome == nil
    {
      return nil
    }
    // The task's own handler would wait for a report that only it can make.
    return await handle.progress(after: number) {
      queue.dispatch.hasEnded || queue.dispatch.callingTask == id
    }
  }

  /// Returns whether the task has ended in the store; `true` if the store can't tell.
  private func hasEndedInStore() async -> Bool {
    do { return try await storedOutcome() != nil } catch { return true }
  }

  /// Returns the outcome in the store; `nil` if the task has not ended, or is about to be reported
  /// as ended.
  private func storedOutcome() async throws -> TaskOutcome? {
    guard let record = try await queue.storage.record(of: id) else {
      // The end of the task may have been reported since the caller read the handle, or may be
      // stored and not reported yet.
      if let outcome = handle.outcome { return outcome }
      if handle.isSuperseded { return nil }
      if queue.dispatch.machine.withLock({ $0.isUnsettled(id) }) { return nil }
      // A caller may have cancelled or removed the task, and the queue may not have reported it
      // yet.
      try await queue.observers.changes.wait(until: .allIsReported, of: id)
      if let outcome = handle.outcome { return outcome }
      throw Results.unknownTaskError(id)
    }
    // A running queue is about to report a success that it has stored, with the handler's value.
    if record.outcome == .succeeded,
      queue.dispatch.machine.withLock({ $0.mode != nil && $0.isUnsettled(id) })
    {
      return nil
    }
    return record.outcome
  }
}

extension EnqueuedTask: CustomStringConvertible {
  /// The ID and the queue, such as `task 0199… in the queue 'uploads'`.
  public var description: String {
    "task \(id) in the queue '\(queue.name)'\(isNew ? "" : ", which already existed")"
  }
}

/// An asynchronous sequence of a task's progress, from 0 to 1, as its handler reports it.
///
/// The sequence starts with the latest fraction that was reported, if there is one. A slow observer
/// gets only the latest fraction. A failed attempt resets the progress to 0, and success sets the
/// progress to 1. The sequence ends when the task ends, when the queue has been shut down, or when
/// the observing Swift task is cancelled. In the task's own handler, the sequence delivers the
/// latest fraction and ends.
///
/// The fractions are not stored. If another process performs the task, the sequence delivers no
/// fractions until the queue, while it runs, finds in the store that the task has ended. Then the
/// sequence ends. If the task succeeded and is retained, the sequence delivers 1 first.
public struct TaskProgress: AsyncSequence, Sendable {
  /// The type of the elements: a fraction from 0 to 1.
  public typealias Element = Double
  /// The type of errors, of which there are none.
  public typealias Failure = Never

  private let task: EnqueuedTask

  init(_ task: EnqueuedTask) { self.task = task }

  /// Makes an iterator that is independent of other iterators.
  public func makeAsyncIterator() -> AsyncIterator { AsyncIterator(task: task) }

  /// Delivers the fractions.
  public struct AsyncIterator: AsyncIteratorProtocol {
    fileprivate let task: EnqueuedTask
    private var number = 0

    fileprivate init(task: EnqueuedTask) { self.task = task }

    /// Returns the next fraction, or `nil` if the task has ended or the observer is cancelled.
    public mutating func next() async -> Double? { await next(isolation: #isolation) }

    /// Returns the next fraction, or `nil` if the task has ended or the observer is cancelled.
    public mutating func next(isolation actor: isolated (any Actor)?) async -> Double? {
      guard let progress = await task.progress(after: number) else { return nil }
      number = progress.number
      return progress.fraction
    }
  }
}

@available(*, unavailable)
extension TaskProgress.AsyncIterator: Sendable {}
