import Synchronization

#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
public import Foundation
#endif

/// A task that was enqueued: its identity, and a way to learn how it ends.
public struct EnqueuedTask: Sendable, Identifiable {
  private let cell: OutcomeCell
  private let queue: TaskQueue
  /// Whether the task was added by this call; `false` if it was there, with the same unique key.
  public let isNew: Bool

  init(cell: OutcomeCell, isNew: Bool, queue: TaskQueue) {
    self.cell = cell
    self.isNew = isNew
    self.queue = queue
  }

  /// The task's identity.
  public var id: TaskID { cell.id }

  /// How far the task is, as its handler reports it.
  public var progress: TaskProgress { TaskProgress(self) }

  /// Takes the task out, or cancels its attempt if it is being performed.
  ///
  /// - Returns: whether the task was there and had not ended.
  /// - Throws: what the store throws.
  @discardableResult
  public func cancel() async throws -> Bool { try await queue.cancel(id) }

  /// Sets the date from which the task may be performed, as ``TaskQueue/reschedule(_:to:)`` does; by
  /// default now.
  ///
  /// - Returns: whether the task was there, had not ended, and was not being performed.
  /// - Throws: as ``TaskQueue/reschedule(_:to:)``.
  @discardableResult
  public func reschedule(to date: Date? = nil) async throws -> Bool {
    try await queue.reschedule(id, to: date)
  }

  /// Waits until the task has succeeded, and returns what its handler returned.
  ///
  /// Only who has held the task since before it succeeded is told: the value is not stored, and not
  /// known to another process.
  /// - Parameter type: what the handler returns.
  /// - Returns: what it has returned.
  /// - Throws: a ``TaskQueueError`` with the code ``TaskQueueError/Code/noValue`` if the task was
  ///   abandoned or cancelled, or the value is not known or of another type; what ``outcome()``
  ///   throws.
  public func value<Value: Sendable>(as type: Value.Type = Value.self) async throws -> Value {
    switch try await outcome() {
    case .succeeded:
      if let value = cell.value as? Value { return value }
      let found = cell.value.map { "it is a \(Swift.type(of: $0))" } ?? "it is not known here"
      throw TaskQueueError(
        .noValue,
        "the task \(id) has succeeded, but not with a \(type): \(found)"
      )
    case .abandoned(let reason):
      throw TaskQueueError(.noValue, "the task \(id) was abandoned: \(reason)")
    case .cancelled:
      throw TaskQueueError(.noValue, "the task \(id) was cancelled")
    }
  }

  /// Waits until the task has ended, and says how; at once if it has.
  ///
  /// It waits for as long as the queue does not run. A handler that waits for another task of its queue
  /// keeps its worker: with one worker (``TaskQueueConfiguration/maxConcurrentTasks``) that task never
  /// begins.
  ///
  /// - Throws: `CancellationError` when the waiting is cancelled: the task goes on. A
  ///   ``TaskQueueError`` if the queue was shut down before the task ended, if the task was there
  ///   before, has ended, and was not kept, or if its own handler asks, or what that
  ///   has started: it would wait for itself.
  ///   What the store throws.
  public func outcome() async throws -> TaskOutcome {
    if let outcome = cell.outcome { return outcome }
    // Whoever shares the store may have performed it.
    let mayHaveEnded = !isNew || queue.hasEnded || queue.store.sharing != nil
    if mayHaveEnded, let outcome = try await storedOutcome() { return outcome }
    if queue.callingTask == id { throw waitsForItself }
    return try await RealWork.waiting({ [id, queue] in await queue.whyIsAwaited(id, $0) }) {
      try await cell.wait { queue.hasEnded ? TaskQueue.shutDownError : nil }
    }
  }

  private var waitsForItself: TaskQueueError {
    TaskQueueError(
      .waitsForItself,
      "the handler of the task \(id) waits for the outcome of its own task, which ends when the "
        + "handler does"
    )
  }

  /// Waits for progress after what was told this number of times; `nil` when none will come.
  func progress(after number: Int) async -> OutcomeCell.Progress? {
    // A task that was there before may have ended before anybody here could be told.
    if number == 0, !isNew, cell.outcome == nil, await isOverInStore(), cell.outcome == nil {
      return nil
    }
    return await cell.progress(after: number) { queue.hasEnded }
  }

  /// Whether the store says that the task has ended, or says nothing any more.
  private func isOverInStore() async -> Bool {
    do { return try await storedOutcome() != nil } catch { return true }
  }

  /// What the store knows; `nil` if the task has not ended.
  private func storedOutcome() async throws -> TaskOutcome? {
    guard let record = try await queue.record(of: id) else {
      // It may have ended, and gone, since the cell was last asked; or be about to be told.
      if let outcome = cell.outcome { return outcome }
      if queue.machine.withLock({ $0.isUnsettled(id) }) { return nil }
      if let outcome = cell.outcome { return outcome }
      throw TaskQueue.unknown(id)
    }
    return record.outcome
  }
}

extension EnqueuedTask: CustomStringConvertible {
  /// The identity and the queue, as in `task 0199… in the queue 'uploads'`.
  public var description: String {
    "task \(id) in the queue '\(queue.name)'\(isNew ? "" : ", which was there")"
  }
}
