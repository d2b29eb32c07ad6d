#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
public import Foundation
#endif

/// The error that a handler throws to be called again later without having failed.
///
/// The attempt is not counted as a retry, and the task's last error stays as it was.
/// The date is chosen when it is thrown: a system clock that is set back afterwards does not bring it
/// forward.
public struct TaskSnoozed: Error, CustomStringConvertible {
  /// How long to put the task off; a negative duration means not at all.
  public let duration: Duration

  /// Makes the error with the time to put the task off for.
  public init(for duration: Duration) { self.duration = duration }

  /// How long the task is put off.
  public var description: String { "put off for \(duration)" }
}

extension TaskSnoozed: LocalizedError {
  /// How long the task is put off.
  public var errorDescription: String? { description }
}
