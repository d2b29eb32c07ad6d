#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
public import Foundation
#endif

/// An error that says what a queue could not do, why, and what to do about it.
public struct TaskQueueError: Error, CustomStringConvertible {
  /// The kind of an error.
  ///
  /// More kinds may be added.
  public struct Code: Hashable, Sendable, CustomStringConvertible {
    private let name: String

    private init(_ name: String) { self.name = name }

    /// The code's name, as in `waitsForItself`.
    public var description: String { name }

    /// An argument makes no sense, such as a negative number of retries.
    public static let invalidArgument = Code("invalidArgument")
    /// The same name was registered for the payloads of two types, or is the name of another queue
    /// of the group.
    public static let nameTaken = Code("nameTaken")
    /// The group has no queue of this name.
    public static let unknownQueue = Code("unknownQueue")
    /// Another task has the same unique key, and the policy is ``UniquePolicy/reject``, or a task
    /// was to be restarted.
    public static let duplicate = Code("duplicate")
    /// A task was to wait for another one that is not in the store, or has ended without success.
    public static let unmetDependency = Code("unmetDependency")
    /// `run()` or `runAvailable()` was called while this queue, or another one on its store, runs.
    public static let alreadyRunning = Code("alreadyRunning")
    /// The queue was shut down, and performs no more tasks.
    public static let shutDown = Code("shutDown")
    /// The queue's store failed; ``TaskQueueError/underlying`` says how.
    public static let storeFailed = Code("storeFailed")
    /// The queue was destroyed, with its tasks.
    public static let destroyed = Code("destroyed")
    /// A handler called a function that would wait for the end of its own attempt.
    public static let waitsForItself = Code("waitsForItself")
    /// The task did not succeed, or the value that it succeeded with is not known.
    public static let noValue = Code("noValue")
    /// The store has no task with this ID.
    public static let unknownTask = Code("unknownTask")
    /// The task is being performed, so it can't be changed.
    public static let isRunning = Code("isRunning")
    /// A task's payload is not of the requested type, or can't be decoded as it.
    public static let undecodablePayload = Code("undecodablePayload")
    /// A task's payload is sealed and could not be opened, or is not sealed and should be.
    ///
    /// ``TaskQueueError/underlying`` is the error that the ``PayloadSeal`` threw.
    public static let unopenedPayload = Code("unopenedPayload")
  }

  /// The kind of the error.
  public let code: Code
  /// What is wrong and what to do about it, for a person to read.
  public let message: String
  /// The error of the store or of the seal, if there is one.
  ///
  /// It is the store's if the code is ``Code/storeFailed``, and the seal's if it is
  /// ``Code/unopenedPayload``.
  public let underlying: (any Error)?

  init(_ code: Code, _ message: String, underlying: (any Error)? = nil) {
    self.code = code
    self.message = message
    self.underlying = underlying
  }

  /// The message.
  public var description: String { message }
}

extension TaskQueueError: LocalizedError {
  /// The message.
  public var errorDescription: String? { message }
}
