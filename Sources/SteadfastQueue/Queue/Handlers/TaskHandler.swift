#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
public import Foundation
#endif

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
///     // One that was given up may be restarted.
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
  /// A task that has ended may be retained, and restarted: then delete only what a restart does not
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
