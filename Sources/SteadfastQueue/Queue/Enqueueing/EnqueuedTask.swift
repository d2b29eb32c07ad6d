import Synchronization
public import SystemFoundation

/// An enqueued task: its ID, its progress, and a way to wait for its outcome.
public struct EnqueuedTask: Sendable, Identifiable {
  private let handle: OutcomeHandle
  private let queue: QueueCore
  /// Whether the call that returned this value added the task.
  ///
  /// It is `false` if the call returned an existing task with the same unique key, or if the task
  /// was looked up with ``TaskQueue/task(_:)``.
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

  /// Returns the task's record from the store: its state, its dates, its failures.
  ///
  /// - Returns: the record; `nil` if the task no longer exists.
  /// - Throws: what the store throws.
  public func record() async throws -> TaskRecord? {
    try await queue.opened.storage.record(of: id)
  }

  /// Cancels the task, or only its attempt if it is being performed, as ``TaskQueue/cancel(_:)``
  /// does.
  ///
  /// - Returns: whether the task existed and had not ended.
  /// - Throws: what the store throws.
  @discardableResult
  public func cancel() async throws -> Bool {
    try await queue.opened.results.carryOut(.cancel, for: id)
  }

  /// Sets the earliest date at which the task may be performed, as
  /// ``TaskQueue/reschedule(_:to:)`` does.
  ///
  /// - Returns: whether the task existed, had not ended, and was not being performed.
  /// - Throws: as ``TaskQueue/reschedule(_:to:)``.
  @discardableResult
  public func reschedule(to date: Date) async throws -> Bool {
    try await queue.opened.results.reschedule(id, to: date)
  }

  /// Makes the task available now, as ``TaskQueue/performNow(_:)`` does.
  ///
  /// - Returns: whether the task existed, had not ended, was not being performed, and was not yet
  ///   available.
  /// - Throws: as ``TaskQueue/performNow(_:)``.
  @discardableResult
  public func performNow() async throws -> Bool {
    try await queue.opened.results.carryOut(.reschedule(to: nil), for: id)
  }

  /// Waits until the task has succeeded, and returns what its handler returned.
  ///
  /// The value is not stored, and other processes don't know it. To get the value, a caller must
  /// have had an `EnqueuedTask` of the task since before the task succeeded.
  /// - Parameter type: the type of the value that the handler returns.
  /// - Returns: the value that the handler returned.
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
  /// If the task has already ended, the call returns at once. If the queue does not run, the call
  /// continues to wait. If a task with the same unique key supersedes this one
  /// (``TaskEvent/superseded(_:by:)``), the call returns the outcome of that task.
  ///
  /// A handler that waits for another task of its queue keeps its worker busy. With one worker
  /// (``TaskQueueConfiguration/maxConcurrentTasks``), the other task never starts.
  ///
  /// - Throws: `CancellationError` when the waiting is cancelled; the task itself continues. A
  ///   ``TaskQueueError`` in three cases: the queue was shut down before the task ended; the task
  ///   ended and was not retained, and it existed before the call that returned this value, or
  ///   another process performed it; the caller is the task's own handler, or a Swift task that the
  ///   handler started, and would wait for itself. If a Swift task that a handler started outlives
  ///   the handler, it counts as started by the next handler on the same worker; use a detached
  ///   task for such work. What the store throws.
  public func outcome() async throws -> TaskOutcome {
    if let outcome = handle.outcome { return outcome }
    let isLookedUp = queue.dispatch.hasEnded || mayHaveEndedUnnoticed
    if isLookedUp, let outcome = try await storedOutcome() { return outcome }
    if queue.dispatch.callingTask == id { throw waitsForItselfError }
    return try await RealWork.reportingWait({ [id, queue] in await queue.whyIsAwaited(id, $0) }) {
      try await handle.wait { queue.dispatch.machine.withLock { $0.reasonToFailWaiters } }
    }
  }

  /// Whether the task may have ended before anything in this process was notified.
  ///
  /// This is so if the task existed before, if another process that shares the store may have
  /// performed it, or if the store's answer to a change that ended it was lost.
  private var mayHaveEndedUnnoticed: Bool {
    !isNew || queue.store.sharing != nil
      || queue.observers.mayHaveUnreportedOutcomes.load(ordering: .acquiring)
  }

  private var waitsForItselfError: TaskQueueError {
    TaskQueueError(
      .waitsForItself,
      "the handler of the task \(id) waits for the outcome of its own task, which ends when the "
        + "handler does"
    )
  }

  /// Waits for the progress report that follows report `number`; `nil` if there will be none.
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

  /// Returns the outcome in the store; `nil` if the task has not ended, or its end is about to be
  /// reported.
  private func storedOutcome() async throws -> TaskOutcome? {
    guard let record = try await queue.storage.record(of: id) else {
      // The task may have ended since the handle was read, or its end is stored but not yet
      // reported.
      if let outcome = handle.outcome { return outcome }
      if handle.isSuperseded { return nil }
      if queue.dispatch.machine.withLock({ $0.isUnsettled(id) }) { return nil }
      // Perhaps the queue ended it at a caller's request, and has yet to report that.
      try await queue.observers.changes.wait(until: .allIsReported, of: id)
      if let outcome = handle.outcome { return outcome }
      throw Results.unknownTaskError(id)
    }
    // A running queue reports a success shortly after storing it, and then includes the value.
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
/// The sequence starts with the latest fraction that was reported, if there is one. A slow observer
/// gets only the latest fraction. A failed attempt resets the progress to 0, and success sets it to
/// 1. The sequence ends when the task ends, when the queue has been shut down, or when the
/// observing Swift task is cancelled. In the task's own handler, the sequence delivers the latest
/// fraction and ends.
///
/// The fractions are not stored. If another process performs the task, the sequence does not
/// deliver its fractions. It ends when the queue, while running, finds in the store that the task
/// has ended. If the task succeeded and is retained, the sequence delivers 1 first.
public struct TaskProgress: AsyncSequence, Sendable {
  /// The type of the elements: a fraction from 0 to 1.
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
