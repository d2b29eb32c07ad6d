#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
public import Foundation
#endif

/// A handler with hooks: it performs the tasks of one type, and is asked when they fail or leave.
///
/// ```swift
/// struct Uploader: TaskHandler {
///   func perform(_ upload: Upload, in context: TaskContext) async throws { try await send(upload) }
///   func willRemove(_ upload: Upload, outcome: TaskOutcome, in context: TaskContext) async {
///     // One that was given up may be restarted.
///     guard outcome == .succeeded else { return }
///     try? FileManager.default.removeItem(at: upload.copy)
///   }
/// }
/// await queue.register(handler: Uploader())
/// ```
/// All but ``perform(_:in:)`` have defaults. The hooks are called after the attempt, before what
/// becomes of the task is stored: if the process ends between, the attempt is made again and so are
/// the calls. A hook holds up its worker, not the others.
public protocol TaskHandler<Payload>: Sendable {
  /// What its tasks carry.
  associatedtype Payload: TaskPayload
  /// What it returns, for whoever holds the task.
  associatedtype Output: Sendable

  /// Does the work: returning is success, throwing is failure.
  ///
  /// The same rules hold as for a handler given to ``TaskQueue/register(_:maxConcurrentTasks:perform:)``.
  func perform(_ payload: Payload, in context: TaskContext) async throws -> Output

  /// Chooses when a failed task is tried again; by default at the proposed date.
  ///
  /// It is asked when the queue's backoff proposes a date: not for a task that does not use backoff,
  /// nor when the error has set its own delay. A date that has passed means at once, behind the
  /// tasks that are available.
  func retryDate(
    of payload: Payload,
    after error: any Error,
    proposed date: Date,
    in context: TaskContext
  ) async -> Date

  /// Whether a task whose retries are used up begins anew, with none counted; by default not.
  ///
  /// It then waits for the backoff of a first retry, if it uses backoff, and
  /// ``retryDate(of:after:proposed:in:)`` is asked.
  func shouldRestart(
    _ payload: Payload,
    after error: any Error,
    in context: TaskContext
  ) async -> Bool

  /// Told that a task ends, on success too; by default it does nothing.
  ///
  /// A task that has ended may be kept, and restarted: then delete only what a restart does not need.
  /// Nothing is called when a kept task leaves at last.
  ///
  /// After a cancellation it is called in a Swift task that is cancelled.
  ///
  /// A task that is cancelled, replaced or removed while it waits leaves without this call.
  func willRemove(_ payload: Payload, outcome: TaskOutcome, in context: TaskContext) async
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
  public func willRemove(
    _ payload: Payload,
    outcome: TaskOutcome,
    in context: TaskContext
  ) async {}
}
