#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
public import Foundation
#endif

/// What a queue could not do, why, and what to do about it.
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
    /// A name was registered for the payloads of two types.
    public static let nameTaken = Code("nameTaken")
    /// A task with the same unique key is there, and the policy is ``UniquePolicy/reject``.
    public static let duplicate = Code("duplicate")
    /// `run()` or `runAvailable()` was called while the queue runs, or another one on its store.
    public static let alreadyRunning = Code("alreadyRunning")
    /// The queue was shut down: it performs nothing any more.
    public static let shutDown = Code("shutDown")
    /// The queue's store failed; ``TaskQueueError/underlying`` says how.
    public static let storeFailed = Code("storeFailed")
    /// The queue was destroyed, with its tasks.
    public static let destroyed = Code("destroyed")
    /// A handler has called what would wait for the end of its own attempt.
    public static let waitsForItself = Code("waitsForItself")
    /// The task did not succeed, or nobody knows the value that it succeeded with.
    public static let noValue = Code("noValue")
    /// The store knows no task with this identity.
    public static let unknownTask = Code("unknownTask")
    /// The task is being performed, and so can't be changed.
    public static let isRunning = Code("isRunning")
    /// A task's payload is not one of the type that was asked for, or can't be decoded as it.
    public static let undecodablePayload = Code("undecodablePayload")
    /// A task's payload is sealed and could not be opened, or is not sealed and should be;
    /// ``TaskQueueError/underlying`` is what the ``PayloadSeal`` has thrown.
    public static let unopenedPayload = Code("unopenedPayload")
  }

  /// The kind of the error.
  public let code: Code
  /// What is wrong and what to do, for a person to read.
  public let message: String
  /// The store's error, where the code is ``Code/storeFailed``; the seal's, where it is
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
