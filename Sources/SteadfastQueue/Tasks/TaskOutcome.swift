#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
public import Foundation
#endif

/// How a task ended.
public enum TaskOutcome: Sendable, Hashable {
  /// Its handler returned, and its success is stored.
  case succeeded
  /// It was abandoned; the reason is the text of the last error.
  ///
  /// Its retries are used up, its handler abandoned it, it has expired, or it interrupted the
  /// process too often.
  case abandoned(reason: String)
  /// It was cancelled before it ended.
  case cancelled
}

extension TaskOutcome: CustomStringConvertible {
  /// As in `succeeded`, or `abandoned: the post was deleted`.
  public var description: String {
    switch self {
    case .succeeded: "succeeded"
    case .abandoned(let reason): "abandoned: \(reason)"
    case .cancelled: "cancelled"
    }
  }
}

/// Why an attempt failed, and when.
public struct TaskFailure: Sendable, Hashable {
  /// The text of the error.
  public let reason: String
  /// When the attempt ended.
  public let date: Date

  /// Makes a failure.
  public init(reason: String, date: Date) {
    self.reason = reason
    self.date = date
  }
}
