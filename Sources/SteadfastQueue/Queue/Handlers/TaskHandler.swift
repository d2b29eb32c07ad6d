public import SteadfastRetry
public import SystemFoundation

/// A handler with hooks: it performs the tasks of one type, and is notified when they fail or end.
///
/// ```swift
/// struct Uploader: TaskHandler {
///   func perform(_ upload: Upload, in context: TaskContext) async throws {
///     try await send(upload)
///   }
///   func willEnd(
///     _ upload: Upload,
///     outcome: TaskOutcome,
///     in context: TaskContext
///   ) async {
///     // A dead letter may be retried.
///     guard outcome == .succeeded else { return }
///     try? FileManager.default.removeItem(at: upload.copy)
///   }
/// }
/// await queue.register(handler: Uploader())
/// ```
/// All methods but ``perform(_:in:)`` are hooks, and have default implementations. The hooks are
/// called after the attempt, and before its result is stored. If the process ends in between, the
/// attempt and the calls are repeated. While a hook runs, the queue's other workers continue.
public protocol TaskHandler<Payload>: Sendable {
  /// The type of the tasks' payloads.
  associatedtype Payload: TaskPayload
  /// The type of the value that ``perform(_:in:)`` returns; callers get it from an
  /// ``EnqueuedTask``.
  associatedtype Output: Sendable

  /// Does the work; the attempt succeeds if this returns, and fails if it throws.
  ///
  /// The same rules apply as for a closure passed to
  /// ``TaskQueue/register(_:maxConcurrentTasks:perform:)``.
  func perform(_ payload: Payload, in context: TaskContext) async throws -> Output

  /// Returns the date at which a failed task is retried; by default the proposed date.
  ///
  /// The queue calls this when its backoff proposes a date, so not for a task that does not use
  /// backoff, and not if the error sets a delay of its own. If the returned date has passed, the
  /// task is available at once, but after the tasks that are already available.
  func retryDate(
    of payload: Payload,
    after error: any Error,
    proposed date: Date,
    in context: TaskContext
  ) async -> Date

  /// Returns whether a task that has used up its retries starts over; by default `false`.
  ///
  /// If the task starts over, its number of retries is reset to 0. If the task uses backoff, it
  /// waits as before its first retry, and ``retryDate(of:after:proposed:in:)`` is called.
  func shouldRestart(
    _ payload: Payload,
    after error: any Error,
    in context: TaskContext
  ) async -> Bool

  /// Called when an attempt ends the task, with success or without; by default it does nothing.
  ///
  /// A task that has ended may be retained, and a caller may then retry it. In this case, delete
  /// only what a retry does not need. When a retained task is removed later, no method is called.
  ///
  /// If the task was cancelled, this is called in a cancelled Swift task.
  ///
  /// If a task is cancelled, replaced or removed while it waits, this is not called.
  func willEnd(_ payload: Payload, outcome: TaskOutcome, in context: TaskContext) async
}

extension TaskHandler {
  /// Returns the proposed date.
  public func retryDate(
    of payload: Payload,
    after error: any Error,
    proposed date: Date,
    in context: TaskContext
  ) async -> Date { date }

  /// Returns `false`.
  public func shouldRestart(
    _ payload: Payload,
    after error: any Error,
    in context: TaskContext
  ) async -> Bool { false }

  /// Does nothing.
  public func willEnd(
    _ payload: Payload,
    outcome: TaskOutcome,
    in context: TaskContext
  ) async {}
}

/// A payload that performs itself.
///
/// ```swift
/// struct Sync: PerformableTask {
///   func perform(in context: TaskContext) async throws {
///     try await syncEverything()
///   }
/// }
/// await queue.register(Sync.self)
/// ```
public protocol PerformableTask: TaskPayload {
  /// The type of the value that ``perform(in:)`` returns; callers get it from an ``EnqueuedTask``.
  associatedtype Output: Sendable = Void

  /// Does the work; the attempt succeeds if this returns, and fails if it throws.
  ///
  /// The same rules apply as for a closure passed to
  /// ``TaskQueue/register(_:maxConcurrentTasks:perform:)``.
  func perform(in context: TaskContext) async throws -> Output
}

/// The error that a handler throws to abandon its task at once, even if it has retries left.
///
/// Any other `RetryAwareError` whose `retryDecision` is `.stop` has the same effect.
public struct TaskAbandoned: RetryAwareError, CustomStringConvertible {
  /// The reason why the task can't be done.
  ///
  /// The reason is part of the task's outcome (``TaskOutcome``), and is stored if the task is
  /// retained.
  public let reason: String

  /// Makes the error with a reason.
  public init(_ reason: String) { self.reason = reason }

  /// `.stop`.
  public var retryDecision: RetryDecision { .stop }

  /// The reason.
  public var description: String { reason }
}

extension TaskAbandoned: LocalizedError {
  /// The reason.
  public var errorDescription: String? { description }
}

/// The error that a handler throws to be called again later, without counting a failure.
///
/// The attempt does not count as a retry, and the task keeps its last error. ``duration`` counts
/// from the moment when the queue handles the error. If the system clock is ahead at that moment,
/// the duration counts from when the clock is corrected (<doc:DatesAndExpiry>).
///
/// `withRetry` in a handler does not retry after this error, but throws it at once.
public struct TaskSnoozed: RetryAwareError, CustomStringConvertible {
  /// Which tasks are postponed.
  public enum Scope: Sendable, Hashable {
    /// Only the task whose handler throws the error.
    case task
    /// The task whose handler throws the error, and all tasks that share its ``RateLimit``.
    ///
    /// Use this case when a server has responded with 429 (too many requests), for example. If the
    /// task has a limit with a key, the tasks with the same key are postponed; otherwise, if its
    /// name has a limit, the tasks with that name; otherwise, the tasks that share the queue's
    /// limit. Without any limit, only the task is postponed. The pause is stored, and applies to
    /// all processes that share the store.
    case rateLimit
  }

  /// How long to snooze the task; a negative duration counts as zero.
  public let duration: Duration
  /// Which tasks are postponed; by default only the task whose handler throws the error.
  public let scope: Scope

  /// Makes the error with the duration of the snooze and the tasks that are postponed.
  public init(for duration: Duration, scope: Scope = .task) {
    self.duration = duration
    self.scope = scope
  }

  /// `.stop`, so that `withRetry` in the handler throws the error, and the queue snoozes the task.
  public var retryDecision: RetryDecision { .stop }

  /// The duration as text, as in `snoozed for 5.0 seconds`.
  public var description: String { "snoozed for \(duration)" }
}

extension TaskSnoozed: LocalizedError {
  /// The ``description``.
  public var errorDescription: String? { description }
}
