public import SteadfastRetry
public import SystemFoundation

/// A handler with hooks: it performs the tasks of one type, and is asked when they fail or end.
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
/// All methods but ``perform(_:in:)`` have defaults. The hooks are called after the attempt, and
/// before its result is stored. If the process ends in between, the attempt is made again, and so
/// are the calls. A hook keeps its own worker busy, not the others.
public protocol TaskHandler<Payload>: Sendable {
  /// What its tasks carry.
  associatedtype Payload: TaskPayload
  /// What it returns, for callers that hold the task.
  associatedtype Output: Sendable

  /// Does the work: returning is success, throwing is failure.
  ///
  /// The same rules hold as for a handler given to
  /// ``TaskQueue/register(_:maxConcurrentTasks:perform:)``.
  func perform(_ payload: Payload, in context: TaskContext) async throws -> Output

  /// Chooses when a failed task is tried again; by default at the proposed date.
  ///
  /// It is called when the queue's backoff proposes a date: not for a task that does not use
  /// backoff, and not when the error has set its own delay. A date that has passed means at once,
  /// behind the available tasks.
  func retryDate(
    of payload: Payload,
    after error: any Error,
    proposed date: Date,
    in context: TaskContext
  ) async -> Date

  /// Returns whether a task whose retries are used up starts over; by default `false`.
  ///
  /// No retries are counted then. The task waits for the backoff of a first retry, if it uses
  /// backoff, and ``retryDate(of:after:proposed:in:)`` is called.
  func shouldRestart(
    _ payload: Payload,
    after error: any Error,
    in context: TaskContext
  ) async -> Bool

  /// Called when a task ends, on success too; by default it does nothing.
  ///
  /// A task that has ended may be retained, and retried: then delete only what a retry does not
  /// need. Nothing is called when a retained task is removed later.
  ///
  /// After a cancellation it is called in a Swift task that is cancelled.
  ///
  /// A task that is cancelled, replaced or removed while it waits ends without this call.
  func willEnd(_ payload: Payload, outcome: TaskOutcome, in context: TaskContext) async
}

extension TaskHandler {
  /// The proposed date.
  public func retryDate(
    of payload: Payload,
    after error: any Error,
    proposed date: Date,
    in context: TaskContext
  ) async -> Date { date }

  /// `false`.
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
  /// What it returns, for callers that hold the task.
  associatedtype Output: Sendable = Void

  /// Does the work: returning is success, throwing is failure.
  ///
  /// The same rules hold as for a handler given to
  /// ``TaskQueue/register(_:maxConcurrentTasks:perform:)``.
  func perform(in context: TaskContext) async throws -> Output
}

/// The error that a handler throws to abandon its task at once, whatever retries it has left.
///
/// Any `RetryAwareError` whose `retryDecision` is `.stop` does the same; this one is ready-made.
public struct TaskAbandoned: RetryAwareError, CustomStringConvertible {
  /// Why the task can't be done: stored with a retained task, and part of its outcome.
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

/// The error that a handler throws to snooze its task: to be called again later, without a failure.
///
/// The attempt is not counted as a retry, and the task's last error stays as it was. The date is
/// chosen when the error is thrown. Setting the system clock back afterwards does not make the date
/// earlier.
///
/// `withRetry` in a handler does not retry it, but throws it at once.
public struct TaskSnoozed: RetryAwareError, CustomStringConvertible {
  /// What is put off.
  public enum Scope: Sendable, Hashable {
    /// The task alone.
    case task
    /// The task, and all tasks that share its rate limit (``RateLimit``).
    ///
    /// Throw it when a server has answered with 429, say. If the task has a limit with a key, the
    /// tasks with the same key are put off, else those of its name if that has a limit, else those
    /// that share the queue's. Without any limit, it is the task alone. The pause is stored, and
    /// holds for all processes that share the store.
    case rateLimit
  }

  /// How long to snooze the task; a negative duration means not at all.
  public let duration: Duration
  /// What is put off; by default the task.
  public let scope: Scope

  /// Makes the error with how long to snooze the task, and what else is put off.
  public init(for duration: Duration, scope: Scope = .task) {
    self.duration = duration
    self.scope = scope
  }

  /// `.stop`, which is for `withRetry` in the handler: the queue snoozes the task.
  public var retryDecision: RetryDecision { .stop }

  /// How long the task is snoozed.
  public var description: String { "snoozed for \(duration)" }
}

extension TaskSnoozed: LocalizedError {
  /// How long the task is snoozed.
  public var errorDescription: String? { description }
}
