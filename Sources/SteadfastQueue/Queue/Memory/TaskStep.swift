public import SteadfastRetry

#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
public import Foundation
#endif

/// The step of a task that is under way (``TaskContext/step(_:for:repeats:_:ifInterrupted:)->_``).
public struct TaskStep: Sendable, Hashable {
  /// The name that the handler gave it, with what it is for, as in `pick[7]`.
  public let name: String
  /// The ID of the task, a slash, and the name: the same at each attempt.
  ///
  /// Give it to the service that must not do the work twice.
  public let key: String

  init(_ name: String, of id: TaskID) {
    self.name = name
    key = "\(id)/\(name)"
  }
}

/// Whether a step is repeated if it was interrupted.
@nonexhaustive
public enum StepRepetition: Sendable, Hashable {
  /// The step is repeated: it is done at least once.
  case always
  /// The step is not repeated: it is done at most once.
  ///
  /// That it begins is stored first. If the process ends, or the step throws, before its end is
  /// stored, nothing tells whether the work was done. The next attempt asks `ifInterrupted`, or
  /// throws a ``StepInterrupted``.
  case never
}

/// The error for a step that can't be performed: a mistake in the handler.
///
/// Another attempt would meet it again. So the task is abandoned if the handler lets it through.
public struct StepError: RetryAwareError, CustomStringConvertible {
  /// What is wrong with the step.
  ///
  /// More kinds may be added.
  public struct Code: Hashable, Sendable, CustomStringConvertible {
    private let name: String

    private init(_ name: String) { self.name = name }

    /// The attempt has used the name before; two steps need two names.
    public static let nameUsedTwice = Code("nameUsedTwice")
    /// It was called in the body of another step, which is repeated as a whole.
    public static let nested = Code("nested")
    /// The name is empty, too long, or has a NUL (U+0000).
    public static let invalidName = Code("invalidName")
    /// Its value can't be encoded.
    public static let notEncodable = Code("notEncodable")
    /// Its value is too large, or the task would remember too much.
    ///
    /// The work was done, and is not remembered.
    public static let tooLarge = Code("tooLarge")
    /// The attempt is over: the context was used after the handler had ended.
    public static let attemptIsOver = Code("attemptIsOver")

    /// The code's name.
    public var description: String { name }
  }

  /// What is wrong.
  public let code: Code
  /// The name of the step.
  public let name: String
  /// What is wrong and what to do about it, for a person to read.
  public let message: String

  init(_ code: Code, _ name: String, _ message: String) {
    self.code = code
    self.name = name
    self.message = message
  }

  /// `.stop`.
  public var retryDecision: RetryDecision { .stop }
  /// The message.
  public var description: String { message }
}

/// The error for a step that is not repeated, and that was interrupted.
///
/// It began in an earlier attempt, and nothing tells whether its work was done. Ask the other side,
/// as `ifInterrupted` of ``TaskContext/step(_:for:repeats:_:ifInterrupted:)->_`` does. If the
/// handler lets this error through, the task is abandoned: a dead letter for a person to look at.
public struct StepInterrupted: RetryAwareError, CustomStringConvertible {
  /// The step.
  public let step: TaskStep

  /// `.stop`.
  public var retryDecision: RetryDecision { .stop }
  /// As in `the step 'wire' was interrupted, and is not repeated; ask whether it was done`.
  public var description: String {
    "the step '\(step.name)' was interrupted, and is not repeated; ask the other side whether it was "
      + "done"
  }
}

/// The error that leaves a handler whose task was suspended.
///
/// ``TaskContext/sleep(_:for:)`` and ``TaskContext/completion(_:of:within:_:)`` throw it. Let it
/// through, after any clean-up. Whatever the handler then returns or throws, the task is suspended,
/// and the handler is called again on the date, or when the completion has come.
///
/// `withRetry` in a handler does not retry it, but throws it at once.
public struct TaskSuspended: RetryAwareError, CustomStringConvertible {
  /// `.stop`, which is for `withRetry` in the handler: the queue suspends the task.
  public var retryDecision: RetryDecision { .stop }
  /// A text for logs.
  public var description: String { "the task is suspended" }
}

extension StepError: LocalizedError {
  /// The message.
  public var errorDescription: String? { description }
}

extension StepInterrupted: LocalizedError {
  /// What happened, and what to do.
  public var errorDescription: String? { description }
}

extension TaskSuspended: LocalizedError {
  /// What happened.
  public var errorDescription: String? { description }
}
